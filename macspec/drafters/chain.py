"""Chains drafted token by token with a model: a draft model, or a head of the target."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import mlx.core as mx

from ..choices import MAX_DEPTH
from ..control import Offer, RecentAcceptance, bucket_of
from ..kernels import Draw
from .drafter import Context, Dispatch, Proposal

Trial = tuple[Callable[[], Sequence[mx.array]], Callable[[], None]]
"""Builds what is timed, and takes it back."""


DEEP = 8
"""Tokens of a round that is studied afterwards."""

RANKED = 256
"""Most tokens that top-p keeps in a draft, which may be drawn from any distribution."""


class Reader(Protocol):
    """A model that reads the committed tokens."""

    @property
    def length(self) -> int:
        """How many of them it has read."""
        ...

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        """Read a chunk of those that it has not read, but not the last; started, not awaited.

        Args:
            boundaries: positions, ascending, at which caches that cannot go back anywhere get a
                checkpoint.
        """
        ...


class Stepper(Reader, Protocol):
    """A model that gives the logits of one token after another."""

    name: str
    at_once: bool
    """Whether one pass drafts all tokens of a round."""

    def room(self, tokens: Sequence[int]) -> int:
        """How many tokens it could draft after these."""
        ...

    def ready(self, tokens: Sequence[int]) -> bool:
        """Whether it could step now."""
        ...

    def unread(self, tokens: Sequence[int]) -> int:
        """Committed tokens that it would have to read first."""
        ...

    def first(self, tokens: Sequence[int], depth: int, dispatch: Dispatch) -> mx.array:
        """The logits [1, V] after all committed tokens; ``depth`` tokens will be drafted."""
        ...

    def next(self, token: mx.array, dispatch: Dispatch) -> mx.array:
        """The logits [1, V] after one more drafted token [1]."""
        ...

    def rollback(self, length: int) -> None:
        """Only the first ``length`` tokens of what was read or drafted are still valid."""
        ...

    def reading(self, tokens: Sequence[int]) -> Trial:
        """To time how long reading tokens at once takes."""
        ...

    def notice(self, tokens: Sequence[int]) -> str | None:
        """What the user should be told, once."""
        ...


class _Step(NamedTuple):
    """A drafted token [1], and the scores [1, V] that it is the best of, with and without noise; or
    if it was drawn at once, what it was drawn from where the rule asks for that."""

    token: mx.array
    drawn: mx.array
    scores: mx.array


class ChainDrafter:
    """Drafts a chain token by token, with a branch if asked.

    Tokens that its model has not read are read when needed, in one batched pass (in chunks if
    there are many), so rounds without it cost nothing.

    Args:
        recent: of the text, shared with the other drafters of this kind.
    """

    def __init__(self, stepper: Stepper, recent: RecentAcceptance) -> None:
        self.stepper = stepper
        self.name = stepper.name
        self._recent = recent
        self._asked = 0
        """How many tokens its newest proposal follows."""

    def offer(self, tokens: Sequence[int], soon: bool = False) -> Offer:
        """As any drafter's; ``soon``: once it is ready."""
        ready = soon or self.stepper.ready(tokens)
        room = min(self.stepper.room(tokens), MAX_DEPTH) if ready else 0
        bucket = bucket_of(self._recent.share(len(tokens)))
        return Offer(self.name, room, bucket, self.stepper.unread(tokens))

    def observe(self, committed: Sequence[int], drafted: int, accepted: int) -> None:
        # What was drafted beyond the end says nothing about the draft model.
        drafted, stood = min(drafted, len(committed)), min(accepted, len(committed))
        self._recent.observe(self._asked, drafted, stood)

    def study(
        self, tokens: Sequence[int], begin: int, likely: Callable[[mx.array, int], float]
    ) -> Iterator[tuple[int, int, int]]:
        """Draft again, when idle, what was committed without it: bucket, drafted and accepted
        tokens of each round. How it fared it keeps in mind.

        Args:
            tokens: the committed ones; ``begin``: the first that it would have drafted, behind
                those that its model has read and one more.
            likely: how likely the token at a place would have been accepted, drafted by these
                logits [1, V].
        """
        chance = random.Random(len(tokens))
        while begin < len(tokens) and self.stepper.ready(tokens[:begin]):
            text = tokens[:begin]
            depth = min(DEEP, len(tokens) - begin, self.stepper.room(text))
            if depth < 1:
                return
            accepted, logits = 0, self.stepper.first(text, depth, mx.async_eval)
            while chance.random() < likely(logits, begin + accepted):
                accepted += 1
                if accepted == depth:
                    break
                given = mx.array([tokens[begin + accepted - 1]], mx.uint32)
                logits = self.stepper.next(given, mx.async_eval)
            self.stepper.rollback(begin + accepted)
            yield bucket_of(self._recent.share(begin)), depth, accepted
            self._recent.observe(begin, depth, accepted)
            begin += accepted + 1

    def propose(self, context: Context, depth: int) -> Proposal | None:
        steps = list(self._steps(context, depth, context.draw))
        sampled = context.noise is not None and context.keeps_q
        log_q = mx.concatenate([step.scores for step in steps]) if sampled else None
        return Proposal(mx.concatenate([step.token for step in steps]), log_q)

    def propose_tree(self, context: Context, depth: int, at: int) -> Proposal:
        """A chain of ``depth`` tokens, and the second best guess for one of them.

        Under the keyed rule the best two are those of the noised scores, which makes them the two
        draws most likely to be the target's (Gumbel top-k; Kool et al. 2019, arXiv:1903.06059).

        The tokens are candidates, not draws, so no distribution goes with them: judge them with
        ``verification.follow``.

        Args:
            depth: tokens in the chain.
            at: which of them gets a sibling, 0 the first; it becomes the last node, a leaf.

        Raises:
            ValueError: ``at`` is not in the chain.
        """
        if not 0 <= at < depth:
            raise ValueError(f"a branch at {at} of a chain of {depth}")
        tokens = []
        for number, step in enumerate(self._steps(context, depth)):
            tokens.append(step.token)
            if number == at:
                ids = mx.arange(step.drawn.shape[-1], dtype=mx.uint32)
                others = mx.where(ids == step.token, -mx.inf, step.drawn)
                sibling = mx.argmax(others, axis=-1)
                context.dispatch(sibling)
        parents = (*range(-1, depth - 1), at - 1)
        return Proposal(mx.concatenate([*tokens, sibling]), parents=parents)

    def _steps(self, context: Context, depth: int, draw: Draw | None = None) -> Iterator[_Step]:
        sampling = context.sampling
        self._asked = len(context.tokens)
        tokens: list[mx.array] = []
        noise: mx.array | None = None
        for step in range(depth):
            if tokens:
                logits = self.stepper.next(tokens[-1], context.dispatch)
            else:
                logits = self.stepper.first(context.tokens, depth, context.dispatch)
            at_once = None if draw is None else draw(logits, step)
            if at_once is not None:
                last, log_q = at_once
                scores = drawn = logits if log_q is None else log_q
            else:
                drafted = mx.concatenate(tokens) if tokens else None
                recent = sampling.recent(context.tokens, drafted, 1)
                # Kernels that judge read normalised log-probabilities; the portable rules do not.
                if draw is None:
                    scores = sampling.weights(logits, recent, RANKED)
                else:
                    scores = sampling.scores(logits, recent)
                if noise is None and context.noise is not None:
                    noise = context.noise()  # once the device has begun
                drawn = scores if noise is None else scores + noise[step]
                last = mx.argmax(drawn, axis=-1)
            if not self.stepper.at_once or step == depth - 1:
                context.dispatch(last)
            tokens.append(last)
            yield _Step(last, drawn, scores)

    def rollback(self, length: int) -> None:
        self.stepper.rollback(length)
        self._recent.rollback(length + 1)  # the newest token is never read
