"""What can be changed between any two rounds of a reply."""

from __future__ import annotations

from dataclasses import dataclass, field

from .choices import check_depth, check_method, check_rule
from .sampling import Sampling
from .verification import Rule, rule_named


@dataclass(frozen=True, slots=True)
class Settings:
    """How to draft and how to draw.

    Raises:
        BadOptionError: a value is outside its range.
    """

    method: str = "auto"
    """How tokens are drafted: auto, draft, suffix, ngram or off."""
    depth: int | str = "auto"
    """Tokens drafted in a round, 0 to 32, or auto."""
    rule: str = "block"
    """The acceptance rule: block, keyed or match."""
    sampling: Sampling = field(default_factory=Sampling)
    trees: bool = True
    """Whether a draft model's chain may have a branch, where that is exact and pays."""

    def __post_init__(self) -> None:
        check_method(self.method)
        check_depth(self.depth)
        check_rule(self.rule)

    @property
    def acceptance_rule(self) -> Rule:
        """The acceptance rule of that name."""
        return rule_named(self.rule)
