"""What fits where: a pair's memory on the machines of a group."""

from __future__ import annotations

from dataclasses import dataclass

from ..heads import LoadedHead
from ..models.loading import Model
from ..models.memory import Demand, MemoryPlan, device_limit
from .group import Group, fresh
from .sharding import shares


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What a pair needs on each machine."""

    how: str
    """As of ``Shares``."""
    plans: tuple[tuple[str, MemoryPlan], ...]
    """By machine."""
    longest: int
    """Most positions that fit on all of them; 0: none do."""

    @property
    def fits(self) -> bool:
        return all(plan.fits for _, plan in self.plans)


def plan_group(
    group: Group,
    model: Model,
    draft: Model | None,
    head: LoadedHead | None,
    *,
    context: int | None,
    kv_bits: int | None,
    held: int,
) -> GroupPlan:
    """The plan of a pair on a group, whose ranks need not have joined.

    Args:
        model: the target as one machine would hold it.
        context: positions to plan for; None: as many as fit.
        held: bytes that other engines hold here.

    Raises:
        BadOptionError: the target cannot be spread over so many machines.
    """
    parts = shares(model.name, lambda: fresh(model.path), group.size, model.context)
    own = parts.estimates[0] if head is None else head.beside(parts.estimates[0])
    drafting = None if draft is None else draft.estimate
    demands = [("this machine", Demand(own, drafting, max(device_limit() - held, 0), kv_bits))]
    for rank, estimate in zip(group.ranks, parts.estimates[1:], strict=True):
        demands.append((rank.name, Demand(estimate, None, rank.memory, kv_bits)))
    longest = min(demand.longest(model.context) for _, demand in demands)
    positions = context or longest or model.context
    plans = tuple((name, demand.plan(positions)) for name, demand in demands)
    return GroupPlan(parts.how, plans, longest)
