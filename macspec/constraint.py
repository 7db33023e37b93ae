"""Replies that are JSON of a given schema: which tokens may come next, by llguidance's parser.

The constraint is a mask on the target's logits that follows from the reply's tokens alone: with it
the target is another model, for which every rule of acceptance is as exact. Drafters do not know
it; what they draft against it is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .errors import BadOptionError, quoted
from .parts import ANSWER

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from .models.pair import Pair

LARGEST = 2**16
"""Characters of a schema."""

WHITE: Any = {"whitespace_pattern": r" |\n[ ]{0,20}"}
"""Between the parts of JSON: without a limit small models write it for ever."""


class Constraints:
    """Makes the constraints of a target's replies.

    Args:
        pair: whose target's tokenizer says how the tokens are written.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def of(self, schema: str, part: str) -> Constraint:
        """A constraint for one reply.

        Args:
            schema: a JSON schema.
            part: in which the reply begins.

        Raises:
            BadOptionError: llguidance cannot read the schema or the tokenizer, or is missing.
        """
        if len(schema) > LARGEST:
            raise BadOptionError(f"the JSON schema is longer than {LARGEST} characters: shorten it")
        try:
            from llguidance import LLMatcher
        except ImportError as error:
            raise BadOptionError(
                "JSON needs another package: pip install 'macspec[serve]'"
            ) from error
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, defaults=WHITE)
        except ValueError as error:
            raise _impossible(str(error)) from error
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        _check(matcher)
        return Constraint(matcher, self._tokenizer.vocab_size, part == ANSWER)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance.hf import from_tokenizer

        tokenizer: Any = self._pair.target.tokenizer
        ids = max(self._pair.vocabulary, max(tokenizer.get_vocab().values()) + 1)
        try:
            return from_tokenizer(tokenizer._tokenizer, ids, sorted(self._pair.stop_ids))
        except Exception as error:  # It raises whatever its parts do.
            raise BadOptionError(
                f"replies of {self._pair.target.name} cannot be constrained to JSON: its tokenizer "
                "has no form that llguidance reads"
            ) from error


class Constraint:
    """The constraint of one reply; it holds from where the answer begins.

    Args:
        ids: how many the tokenizer has.
        holds: whether the reply begins with its answer.
    """

    def __init__(self, matcher: LLMatcher, ids: int, holds: bool) -> None:
        self._matcher, self._ids, self._holds = matcher, ids, holds

    def take(self, token: int, part: str) -> bool:
        """Take the next token of the reply, and the part that it leads to; True if it was the last
        one before the answer: those after it were chosen without the constraint.

        Raises:
            BadOptionError: the schema proves too complex.
        """
        if not self._holds:
            self._holds = part == ANSWER
            return self._holds
        self._matcher.consume_token(token)
        _check(self._matcher)
        return False

    def masked(self, logits: mx.array, drafted: Sequence[int]) -> mx.array:
        """The logits, with -inf for what may not come next.

        Rows after a drafted token that may not come are left as they are: it is rejected.

        Args:
            logits: [K + 1, V], row i after the first i drafted tokens.
            drafted: [K] ids.
        """
        if not self._holds:
            return logits
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        words = allocate_token_bitmask(len(drafted) + 1, self._ids)
        fill_next_token_bitmask(self._matcher, words, 0)
        taken = 0
        while taken < len(drafted) and self._matcher.try_consume_tokens([drafted[taken]]):
            taken += 1
            fill_next_token_bitmask(self._matcher, words, taken)
        self._matcher.rollback(taken)
        _check(self._matcher)
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        allowed = mx.array(bits[:, : logits.shape[-1]].astype(np.bool_))
        return mx.where(allowed, logits, -mx.inf)


def _check(matcher: LLMatcher) -> None:
    if error := matcher.get_error():
        raise _impossible(error)


def _impossible(why: str) -> BadOptionError:
    return BadOptionError(f"the JSON schema is not possible: {quoted(why)}")
