"""The acceptance rules. Each emits exactly what the target alone would: see README, "Exactness"."""

from __future__ import annotations

from ..errors import BadOptionError
from .block import Block
from .keyed import Keyed
from .match import Match
from .rule import Rule, Verdict
from .tree import Tree, TreeVerdict, follow

RULES: dict[str, Rule] = {rule.name: rule for rule in (Block(), Keyed(), Match())}


def rule_named(name: str) -> Rule:
    """The rule of that name.

    Raises:
        BadOptionError: there is none.
    """
    if name not in RULES:
        raise BadOptionError(f"accept is {name!r}; it must be one of {', '.join(RULES)}")
    return RULES[name]


__all__ = [
    "RULES",
    "Block",
    "Keyed",
    "Match",
    "Rule",
    "Tree",
    "TreeVerdict",
    "Verdict",
    "follow",
    "rule_named",
]
