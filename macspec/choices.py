"""The choices of speculation: methods, depths and acceptance rules. Needs no MLX."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import BadOptionError

METHODS: Mapping[str, str] = {
    "auto": "the fastest drafter, chosen before every round",
    "draft": "the draft model",
    "mtp": "the target's head for multi-token prediction",
    "eagle": "an EAGLE-3 head",
    "dflash": "a DFlash head: a whole block at once",
    "dspark": "a DSpark head: a whole block at once",
    "ngram": "text repeated in this conversation",
    "suffix": "text repeated here or in past replies",
    "off": "no drafting: plain decoding",
}
"""How tokens are drafted, each with a one-line description."""

BLOCKS = ("dflash", "dspark")
"""The methods that guess a whole block in one pass."""

HEADS = ("mtp", "eagle", *BLOCKS)
"""The methods that run a head."""

MODELS = ("draft", *HEADS)
"""The methods that run a model, which has to be there."""

LOOKUPS = ("ngram", "suffix")
"""The methods that copy from text that is there."""

RULES: Mapping[str, str] = {
    "block": "the fastest",
    "keyed": "the same seed repeats the same text",
    "match": "the classic",
}
"""The acceptance rules, each with a one-line description. All are exact."""

OBJECTIVES: Mapping[str, str] = {
    "speed": "the most tokens per second",
    "energy": "the fewest joules per token at nearly the best speed, where power is measured",
}
"""What the automatic choice aims at, each with a one-line description."""

EFFORTS = ("low", "medium", "high")
"""How much a model reasons, where its template can say so."""

Think = bool | str | None
"""Reasoning on or off, or one of ``EFFORTS``; None: the model's default."""

SWITCHED_OFF = "not drafting: speculation is off"
"""Why a round is plain then."""

MAX_DEPTH = 32
"""Most tokens drafted in a round."""


def think_named(name: str | None) -> Think:
    """What a setting says of reasoning: on, off, an effort, or None."""
    return {"on": True, "off": False}.get(name or "", name)


def check_think(think: Think) -> Think:
    """The same; a BadOptionError if it is neither a switch's position nor an effort."""
    if isinstance(think, str) and think not in EFFORTS:
        raise BadOptionError(f"think is {think!r}; it must be on, off, {', '.join(EFFORTS)}")
    return think


def methods_with(draft: str | None, head: str | None) -> tuple[str, ...]:
    """The methods of a pair with this draft model, and a head of this kind; None: without."""
    lacking = {*HEADS, "draft"} - {head, draft and "draft"}
    return tuple(it for it in METHODS if it not in lacking)


def outlook(method: str, depth: int | str) -> str:
    """How the first round will draft, as far as that is known, in one sentence."""
    if method == "off" or depth == 0:
        return SWITCHED_OFF
    drafter = {"auto": "any drafter", "draft": "the draft model"}.get(method, method)
    deep = "at a depth chosen each round" if depth == "auto" else f"at depth {depth}"
    return f"waiting for the first round: {drafter} {deep}"


def check_method(method: str) -> str:
    """The method; a BadOptionError if there is none of that name."""
    return _one_of("method", method, METHODS)


def check_rule(rule: str) -> str:
    """The rule; a BadOptionError if there is none of that name."""
    return _one_of("rule", rule, RULES)


def check_objective(objective: str) -> str:
    """The objective; a BadOptionError if there is none of that name."""
    return _one_of("objective", objective, OBJECTIVES)


def check_depth(depth: int | str) -> int | str:
    """The depth; a BadOptionError if it is neither ``auto`` nor 0 to ``MAX_DEPTH``."""
    whole = isinstance(depth, int) and not isinstance(depth, bool)
    if depth == "auto" or (whole and 0 <= depth <= MAX_DEPTH):  # type: ignore[operator]
        return depth
    raise BadOptionError(f"depth is {depth}; it must be auto or 0 to {MAX_DEPTH}")


def _one_of(name: str, value: str, choices: Mapping[str, str]) -> str:
    if value in choices:
        return value
    raise BadOptionError(f"unknown {name} {value!r}; choose from {', '.join(choices)}")
