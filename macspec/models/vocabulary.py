"""Whether two models share a vocabulary, and what a draft model makes of ids that it does not know.

Ordinary tokens must agree id by id. Special and other added tokens may differ or be missing, and
the models may have embeddings for fewer or more ids than the tokenizers have tokens.

An id that the draft model does not know gets q = 0: its score is -inf before anything is drawn, so
q is a distribution over the known ids alone. Every rule is exact for any q that the draft token is
really drawn from, and no rule asks what the draft model read: an unknown id comes from the target,
with all of its p, as the residual max(p - q, 0) or as the target's own draw. What stands for such
an id on the draft model's input changes the acceptance and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.tokenizer_utils import TokenizerWrapper

from .cached import CachedModel
from .loading import Model

PROBES = (
    "Hello, world! How are you today?",
    "  two leading spaces, a\ttab,  double  spaces and trailing ones   ",
    "line\nline\r\nline\n\n\nparagraph\n \n",
    "I'm, you've, he'll, THEY'RE; mother-in-law's",
    "0 1 12 123 1234 12345 1,234.56 3.14159 007 1e-9 0xFF ½ ² Ⅷ ١٢٣",
    "def f(x: int) -> str:\n    return f'{x!r:>8}'  # comment\n\n\tif (a && b) { c[i++] += 0; }",
    '{"key": [1, null, true], "path": "C:\\\\dir\\\\file"} <a href="#">b</a> $x_1^2$',
    "https://example.org/a/b?c=d&e=%20 user@example.org #tag @name",
    "naïve café Ærøskøbing Straße İstanbul ﬁ ﬀ ſ",
    "e\u0301 n\u0303 a\u030a\u0323 \u1112\u1161\u11ab \uac00 \u0e01\u0e33 \u0915\u094d\u0937\u093f",
    "中文字符，全角！ １２ＡＢ 日本語テキスト ｶﾀｶﾅ 한국어 문장",
    "Привет мир Γειά σου שלום עולם مرحبا بالعالم",
    "🙂🙃 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ❤️",
    "\u00a0no-break\u2003em\u200bzero\u200djoiner\ufeffmark\u2028separator\u3000wide",
    "CamelCaseWord snake_case_word SCREAMING ALLCAPS mIxEd",
    "… — – “quotes” ‘single’ «guillemets» !!! ??? ... *** --- ===",
    "▁underline Ġbyte </w> ## <0x0A> <|x|>",
    "\x00\x01\x7f\ufffd\U0001f9ff\U00020000",
)
"""Texts on which tokenizers with the same table but another normaliser or splitter differ."""


def vocabulary_of(target: Model) -> int:
    """One more than the highest id that it can emit; ids in between may have no text."""
    return min(target.width, max(target.tokenizer.get_vocab().values(), default=-1) + 1)


def mismatch(target: TokenizerWrapper, draft: TokenizerWrapper) -> str | None:
    """Why a draft model with this tokenizer cannot draft, in one sentence without a full stop."""
    return table_mismatch(target, draft) or splitting_mismatch(target, draft)


def table_mismatch(target: TokenizerWrapper, draft: TokenizerWrapper) -> str | None:
    """Where the tokenizers give the id of an ordinary token different texts."""
    ours, theirs = _table(target), _table(draft)
    if ours == theirs:
        return None
    ordinary = (ours.keys() - target.added_tokens_decoder) | (
        theirs.keys() - draft.added_tokens_decoder
    )
    first = min((i for i in ordinary if ours.get(i) != theirs.get(i)), default=None)
    if first is None:
        return None
    return (
        f"its vocabulary differs: token {first} is {_quoted(ours.get(first))} in the "
        f"target and {_quoted(theirs.get(first))} in the draft ({len(ours)} and {len(theirs)} "
        "tokens)"
    )


def splitting_mismatch(target: TokenizerWrapper, draft: TokenizerWrapper) -> str | None:
    """Where the tokenizers normalise or split a probe differently.

    Probes that contain an added token which only one of them has say nothing and are left out.
    """
    added = {str(it) for it in target.added_tokens_decoder.values()} ^ {
        str(it) for it in draft.added_tokens_decoder.values()
    }
    for text in PROBES:
        if any(token in text for token in added):
            continue
        ours, theirs = (
            tokenizer.encode(text, add_special_tokens=False) for tokenizer in (target, draft)
        )
        if ours != theirs:
            place = next(
                (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                min(len(ours), len(theirs)),
            )
            return (
                f"its tokenizer splits text differently: {_quoted(text)} becomes "
                f"{_quoted(_piece(target, ours, place))} in the target and "
                f"{_quoted(_piece(draft, theirs, place))} in the draft at token {place}"
            )
    return None


@dataclass(frozen=True, eq=False)
class Translation:
    """What a draft model reads for each id of the target, and which ids it may draft."""

    ids: mx.array
    """[vocabulary] uint32: an id that it does not know is read as its own token of the same text,
    else as the one of the same role (begin or end of text), else as a line break."""
    known: mx.array
    """bool [vocabulary]."""

    @property
    def unknown(self) -> int:
        """How many ids it does not know."""
        known: Any = self.known.tolist()
        return sum(not it for it in known)


def translation(target: Model, draft: Model) -> Translation | None:
    """How a draft model without ``mismatch`` reads the target's ids; None where it knows all."""
    ours, theirs = _table(target.tokenizer), _table(draft.tokenizer)
    ids = np.arange(vocabulary_of(target), dtype=np.uint32)
    unknown = [i for i in ids.tolist() if i >= draft.width or ours.get(i) != theirs.get(i)]
    if not unknown:
        return None
    roles = {
        getattr(target.tokenizer, role): getattr(draft.tokenizer, role)
        for role in ("bos_token_id", "eos_token_id")
    }
    places = {text: index for index, text in theirs.items()}
    breaks = draft.tokenizer.encode("\n", add_special_tokens=False)
    known = np.ones(len(ids), np.bool_)
    known[unknown] = False
    for i in unknown:
        choices = (places.get(ours.get(i, "")), roles.get(i), *breaks[-1:], 0)
        ids[i] = next(it for it in choices if it is not None and it < draft.width)
    return Translation(mx.array(ids), mx.array(known))


class TranslatedModel(CachedModel):
    """A draft model that reads and scores the target's ids."""

    def __init__(self, module: Any, translation: Translation, **options: Any) -> None:
        super().__init__(module, translation.ids.size, **options)
        self._ids, self._known = translation.ids, translation.known
        self._table: Any = translation.ids.tolist()

    def read(self, tokens: Any, *arguments: Any, **options: Any) -> Any:
        return super().read([self._table[token] for token in tokens], *arguments, **options)

    def logits(self, tokens: mx.array, *arguments: Any, **options: Any) -> Any:
        return super().logits(self._ids[tokens], *arguments, **options)

    def fitted(self, logits: mx.array) -> mx.array:
        return mx.where(self._known, super().fitted(logits), -mx.inf)


def _table(tokenizer: TokenizerWrapper) -> dict[int, str]:
    return {index: text for text, index in tokenizer.get_vocab().items()}


def _quoted(text: str | None) -> str:
    if text is None:
        return "missing"
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _piece(tokenizer: TokenizerWrapper, ids: list[int], place: int) -> str | None:
    return str(tokenizer.convert_ids_to_tokens(ids[place])) if place < len(ids) else None
