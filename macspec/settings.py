"""How replies are drafted and sampled."""

from __future__ import annotations

from dataclasses import dataclass, field

from .choices import check_depth, check_method, check_objective, check_rule
from .sampling import Sampling
from .verification import Rule, rule_named


@dataclass(frozen=True, slots=True)
class Settings:
    """How to draft and how to sample; can be changed between any two rounds.

    Raises:
        BadOptionError: a value is outside its range.
    """

    method: str = "auto"
    depth: int | str = "auto"
    """Tokens drafted in a round, 0 to 32, or auto."""
    rule: str = "block"
    sampling: Sampling = field(default_factory=Sampling)
    objective: str = "speed"
    """What an automatic choice aims at: speed, or energy where joules are known."""
    trees: bool = True
    """Whether a drafted chain may have a branch where that is exact and pays."""

    def __post_init__(self) -> None:
        check_method(self.method)
        check_depth(self.depth)
        check_rule(self.rule)
        check_objective(self.objective)

    @property
    def acceptance_rule(self) -> Rule:
        return rule_named(self.rule)
