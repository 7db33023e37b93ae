"""The acceptance rules. Each emits exactly what the target alone would: see README, "Exactness"."""

from ..choices import check_rule
from .block import Block
from .match import Keyed, Match
from .rule import Rule, Verdict
from .tree import Tree, TreeVerdict, follow

_RULES: dict[str, Rule] = {rule.name: rule for rule in (Block(), Keyed(), Match())}


def rule_named(name: str) -> Rule:
    """The rule of that name; a BadOptionError if there is none."""
    return _RULES[check_rule(name)]
