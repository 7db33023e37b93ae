"""A target's parts, one for each rank, made by mlx-lm's own sharding.

``shard`` gives every rank a share of each layer. Models that mlx-lm can only deal out by whole
layers (``pipeline``) are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..errors import BadOptionError, brief
from ..models.memory import MemoryEstimate, estimate_memory
from ..standin import places

TENSOR = "tensor"

OUTPUT = "lm_head"
"""What models call their output head. It stays whole, as a head that drafts on rank 0 reads it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a group that need not exist, for sharding."""

    number: int
    count: int

    def rank(self) -> int:
        return self.number

    def size(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True)
class Shares:
    """How a target is spread, and what each rank's part costs."""

    how: str
    """tensor: a share of each layer."""
    estimates: tuple[MemoryEstimate, ...]


def spread(module: Any, group: Any) -> None:
    """Leave of a model what a rank of the group computes.

    Raises:
        ValueError: it cannot be divided so.
    """
    parts = list(module.modules())
    before = [_whole_numbers(it) for it in parts]
    outputs = [(holder, holder[OUTPUT]) for holder, _ in places(module, _any) if OUTPUT in holder]
    module.shard(group)
    count = group.size()
    for part, old in zip(parts, before, strict=True):
        new = _whole_numbers(part)
        for name, number in old.items():
            shared = new.get(name, number) in (number, _share(number, count))
            if not shared:
                raise ValueError(f"{name} is {number}")
    for holder, output in outputs:
        if holder[OUTPUT] is not output:
            holder[OUTPUT], holder.sharding_group = output, None


def shares(name: str, load: Callable[[], Any], count: int, context: int) -> Shares:
    """How a model is to be spread over so many ranks.

    Args:
        load: reads the model anew, without its weights.
        context: positions that it supports.

    Raises:
        BadOptionError: mlx-lm cannot spread it over so many.
    """
    module, why = load(), "mlx-lm has no sharding for this kind of model"
    if hasattr(module, "shard"):
        try:
            spread(module, Place(0, count))
            return Shares(TENSOR, (_estimate(module, context),) * count)
        except (ValueError, AssertionError) as error:
            why = f"its sizes cannot be divided by {count} ({brief(error)})"
    raise BadOptionError(f"{name} cannot be spread over {count} machines: {why}")


def _any(module: Any) -> bool:
    return True


def _share(number: int, count: int) -> int:
    """A rank's share; of fewer than there are ranks, which are repeated, one."""
    if number % count == 0:
        return number // count
    return 1 if count % number == 0 else number


def _whole_numbers(part: Any) -> dict[str, int]:
    return {name: value for name, value in vars(part).items() if type(value) is int}


def _estimate(module: Any, context: int) -> MemoryEstimate:
    """What a part costs, in a pass that is built without its group."""
    alone = mx.distributed.init()
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, Place):
                setattr(part, name, alone)
    return estimate_memory(module, context)
