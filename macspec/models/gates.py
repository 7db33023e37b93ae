"""What a draft model must share with its target before it may draft for it.

A gate answers with the reason why the draft model cannot be used, or None.
"""

from __future__ import annotations

from collections.abc import Callable

from mlx_lm.tokenizer_utils import TokenizerWrapper

from .model import Model

LARGE_DRAFT = 1 / 3
"""Share of the target's parameters above which a draft model is called large."""

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
    "▁underline Ġbyte </w> ## [UNK] <unk> <s> </s> <0x0A> <|x|>",
    "\x00\x01\x7f\ufffd\U0001f9ff\U00020000",
)
"""Texts on which tokenizers with the same table but another normaliser or splitter differ."""

ADDED_PROBES = 64
"""How many of the added tokens are probed inside a text."""


def why_not(target: Model, draft: Model, vocabulary: int) -> str | None:
    """Why this draft model cannot draft for this target, in one sentence without a full stop.

    Args:
        vocabulary: ids that the target can emit.
    """
    gates: list[Callable[[], str | None]] = [
        lambda: same_table(target.tokenizer, draft.tokenizer),
        lambda: same_splitting(target.tokenizer, draft.tokenizer),
        lambda: wide_enough(draft, vocabulary),
    ]
    return next((reason for gate in gates if (reason := gate()) is not None), None)


def table(tokenizer: TokenizerWrapper) -> dict[int, str]:
    """The text of every id that a tokenizer knows, added special tokens included."""
    return {index: text for text, index in tokenizer.get_vocab().items()}


def size(tokenizer: TokenizerWrapper) -> int:
    """One more than the highest id; ids in between may have no text."""
    return max(table(tokenizer), default=-1) + 1


def same_table(target: TokenizerWrapper, draft: TokenizerWrapper) -> str | None:
    """Both tokenizers give every id the same text."""
    ours, theirs = table(target), table(draft)
    if ours == theirs:
        return None
    first = min(i for i in ours.keys() | theirs.keys() if ours.get(i) != theirs.get(i))
    return (
        f"its vocabulary is another one: token {first} is {_quoted(ours.get(first))} in the "
        f"target and {_quoted(theirs.get(first))} in the draft ({len(ours)} and {len(theirs)} "
        "tokens)"
    )


def same_splitting(target: TokenizerWrapper, draft: TokenizerWrapper) -> str | None:
    """Both tokenizers normalise and split the probes alike."""
    added = [str(token) for token in target.added_tokens_decoder.values()][:ADDED_PROBES]
    for text in (*PROBES, *(f"a {token} b{token}\n{token}" for token in added)):
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


def wide_enough(draft: Model, vocabulary: int) -> str | None:
    """The draft model has an embedding for every id that the target can emit."""
    if draft.width >= vocabulary:
        return None
    return f"it knows {draft.width} token ids and the target can emit {vocabulary}"


def size_notice(target: Model, draft: Model) -> str | None:
    """Said once where drafting is likely to cost more than it brings."""
    if draft.parameters <= LARGE_DRAFT * target.parameters:
        return None
    share = draft.parameters / max(target.parameters, 1)
    return (
        f"the draft model has {share:.0%} of the target's parameters: above "
        f"{LARGE_DRAFT:.0%} speculation rarely pays, so choose a smaller one"
    )


def context_notice(draft: Model, context: int) -> str | None:
    """Said once where the draft model's context ends before the conversation's may."""
    if draft.context >= context:
        return None
    return (
        f"the draft model was made for {draft.context} tokens and the context is {context}: "
        f"beyond {draft.context} tokens the draft model stops drafting"
    )


def _quoted(text: str | None) -> str:
    if text is None:
        return "missing"
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _piece(tokenizer: TokenizerWrapper, ids: list[int], place: int) -> str | None:
    return str(tokenizer.convert_ids_to_tokens(ids[place])) if place < len(ids) else None
