"""A target's parts, one for each rank, made by mlx-lm's own sharding.

``shard`` gives every rank a share of each layer. Where it cannot, ``pipeline`` gives each some
whole layers, rank 0 the last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from ..errors import BadOptionError, brief
from ..models.memory import MemoryEstimate, estimate_memory
from ..standin import places

TENSOR, PIPELINE = "tensor", "pipeline"

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
    """tensor: a share of each layer; pipeline: whole layers."""
    estimates: tuple[MemoryEstimate, ...]


def spread(module: Any, group: Any, how: str) -> None:
    """Leave of a model what a rank of the group computes; ``how`` as of ``Shares``.

    Raises:
        ValueError: it cannot be divided so.
    """
    if how == PIPELINE:
        module.model.pipeline(group)
        module.model.__class__ = _in_order(type(module.model))
        return
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
            spread(module, Place(0, count), TENSOR)
            return Shares(TENSOR, (_estimate(module, context),) * count)
        except (ValueError, AssertionError) as error:
            why = f"its sizes cannot be divided by {count} ({brief(error)})"
    if hasattr(getattr(module, "model", None), "pipeline"):
        parts = [load() for _ in range(count)]
        try:
            for number, part in enumerate(parts):
                spread(part, Place(number, count), PIPELINE)
        except ValueError:
            why += f", and it has fewer than {count} layers"
        else:
            kinds = [{type(it) for it in make_prompt_cache(part)} for part in parts]
            if all(it == kinds[0] for it in kinds):
                return Shares(PIPELINE, tuple(_estimate(it, context) for it in parts))
            why += ", and its layers differ too much to be dealt out"
    raise BadOptionError(f"{name} cannot be spread over {count} machines: {why}")


def is_pipeline(module: Any) -> bool:
    """Whether a module is a rank's part of a pipeline."""
    return getattr(getattr(module, "model", None), "pipeline_size", 1) > 1


def _in_order(kind: Any) -> Any:
    """A model whose passes the ranks begin and end in the same order.

    Receiving depends on nothing in mlx-lm's graph, not even on the tokens: rank 0 throws away what
    it makes of them. So what they wait for, and what all get at the end, is started at once.
    """

    class InOrder(kind):  # type: ignore[misc]
        def __call__(self, inputs: mx.array, *more: Any, **named: Any) -> Any:
            mx.async_eval(inputs)
            rows = super().__call__(inputs, *more, **named)
            mx.async_eval(rows)
            return rows

    return InOrder


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
        if hasattr(part, "pipeline_size"):
            part.pipeline_rank, part.pipeline_size = 0, 1
        for name, value in list(vars(part).items()):
            if isinstance(value, Place):
                setattr(part, name, alone)
    return estimate_memory(module, context)
