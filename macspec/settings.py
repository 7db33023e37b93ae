"""What can be changed between any two rounds of a reply."""

from __future__ import annotations

from dataclasses import dataclass, field

from .control import checked_depth, checked_method
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
    accept: str = "block"
    """The acceptance rule: block, keyed or match."""
    sampling: Sampling = field(default_factory=Sampling)
    trees: bool = True
    """Whether a draft model's chain may have a branch, where that is exact and pays."""

    def __post_init__(self) -> None:
        checked_method(self.method)
        checked_depth(self.depth)
        rule_named(self.accept)

    @property
    def rule(self) -> Rule:
        """The acceptance rule itself."""
        return rule_named(self.accept)
