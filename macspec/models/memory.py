"""What a model costs in memory, and the plan that fits a pair into what the device gives.

Everything here is known before any weight is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ChunkedKVCache, KVCache, RotatingKVCache, make_prompt_cache
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from ..cache import CHECKPOINTS
from ..choices import MAX_DEPTH
from ..device import on_metal
from ..errors import OutOfMemoryError
from ..layercaches import group_size
from ..recurrent import Recorder
from ..standin import StandIn, places, replaced
from ..windowed import SLACK
from .machine import unified_memory
from .prefill import PREFILL_CHUNK, PREFILL_CHUNKS

ROWS = MAX_DEPTH + 1
"""Most rows of a verify pass."""

STEP = 256
"""Positions by which mlx-lm's caches grow."""

LIVE = 3
"""How often the outputs of a layer's projections are in memory at once during a prefill pass.

Measured on MLX's CPU backend with three llama models of 1 to 8 layers: 2.9 to 3.0. MLX builds a
pass ahead of computing it, so that more than one layer's arrays are alive.
"""

DRAWN = 4
"""Arrays [ROWS, vocabulary] of float32 in a verify pass: p, q, the residual and their sum."""

FUSED_HEADS = (64, 80, 128)
"""Head sizes for which Metal's attention of many rows keeps no scores.

See ``use_fallback`` in MLX's ``scaled_dot_product_attention.cpp``.
"""

LEAST = 2048
"""Shortest context that is chosen unasked to make a pair fit."""

HEADS = ("n_heads", "num_heads", "num_attention_heads")
EXPERTS = ("top_k", "num_experts_per_tok")
"""What architectures call the query heads, and the experts that a token is sent to."""

EXPERT_LAYERS = (SwitchLinear, QuantizedSwitchLinear)


@dataclass(frozen=True)
class LayerEstimate:
    """What one layer's cache costs: bytes of state, and bytes for each position held."""

    state: int = 0
    values: int = 0
    """Numbers kept for a position, keys and values of all heads together."""
    itemsize: int = 0
    window: int | None = None
    """Most positions that are kept, None for all."""
    group: int | None = None
    """Group size that quantizes this cache, None where it stays as it is."""
    heads: int = 0
    """Heads of the queries."""
    fused: bool = False
    """Whether a kernel attends to many rows without keeping their scores in memory."""

    def held(self, context: int) -> int:
        """Positions kept at a context."""
        return context if self.window is None else min(context, self.window + SLACK + PREFILL_CHUNK)

    def scores(self, context: int, kv_bits: int | None) -> int:
        """Attention scores kept for a row; of a quantized cache no kernel spares them."""
        quantized = kv_bits is not None and self.group is not None
        return 0 if self.fused and not quantized else self.heads * self.held(context)

    def bytes(self, context: int, kv_bits: int | None) -> int:
        """Bytes at a context, rounded up as the cache grows."""
        held = -(-self.held(context) // STEP) * STEP
        each = self.values * self.itemsize
        if kv_bits is not None and self.group is not None:
            # A scale and a bias for every group.
            each = self.values * kv_bits // 8 + 2 * self.itemsize * self.values // self.group
        # The state now and before the pass.
        return 2 * self.state + held * each + self.checkpoints(context)

    def checkpoints(self, context: int) -> int:
        """Bytes of the states and windows that are kept to return to."""
        windowed = self.window is not None and self.window < context
        held = -(-self.held(context) // STEP) * STEP if windowed else 0
        return CHECKPOINTS * (self.state + held * self.values * self.itemsize)


@dataclass(frozen=True)
class MemoryEstimate:
    """What one model costs, known without reading its weights."""

    weights: int
    active: int
    """Bytes of weights that a pass of one row reads: of experts, those that it is sent to."""
    width: int
    """Logits of one row."""
    outputs: int
    """Numbers that the projections of the largest layer put out for a row."""
    itemsize: int
    """Bytes of one of them."""
    context: int
    """Positions that the model supports; its cache holds no more."""
    layers: tuple[LayerEstimate, ...]
    tape: int = 0
    """Bytes that a row of a verify pass leaves, to be taken back from stateful layers."""
    rows: int = 0
    """Bytes of hidden rows that are kept for a head."""

    @property
    def state(self) -> int:
        """Bytes of the stateful layers' states."""
        return sum(layer.state for layer in self.layers)

    def cache(self, context: int, kv_bits: int | None = None) -> int:
        """Bytes of the model's cache at a context."""
        held = min(context, self.context)
        return self.rows + sum(layer.bytes(held, kv_bits) for layer in self.layers)

    def checkpoints(self, context: int) -> int:
        """The part of them that states and windows to return to take."""
        return sum(layer.checkpoints(min(context, self.context)) for layer in self.layers)

    def buffers(self, context: int, kv_bits: int | None = None, chunk: int = PREFILL_CHUNK) -> int:
        """Bytes of the larger of a prefill and a verify pass at a context; an estimate.

        Args:
            chunk: rows of the prefill pass.
        """
        held = min(context, self.context)
        rows = min(chunk, held)
        scores = max((layer.scores(held, kv_bits) for layer in self.layers), default=0)
        prefill = rows * self.itemsize * (LIVE * self.outputs + scores)
        windows = sum(it.values * it.itemsize for it in self.layers if it.window is not None)
        prefill += max(rows - PREFILL_CHUNK, 0) * (1 + CHECKPOINTS) * windows
        return max(prefill, ROWS * (4 * DRAWN * self.width + self.tape))


def estimate_memory(module: Any, context: int) -> MemoryEstimate:
    """What a model costs.

    One token is sent through the model and never evaluated: shapes and types of the caches and
    of the logits follow without computing anything or reading a weight, for every architecture
    alike. Its weights may still be on the disk (``load_model(lazy=True)``).
    """
    cache = make_prompt_cache(module)
    with _idle_experts(module) as idle:
        logits = module(mx.array([[0]]), cache=cache)
    weights = sum(array.nbytes for array in _arrays(module.parameters()))
    heads = _largest(module, HEADS)
    layers = tuple(
        layer_estimate(layer, heads)
        for whole in cache
        for layer in getattr(whole, "caches", [whole])
    )
    return MemoryEstimate(
        weights=weights,
        active=weights - sum(idle),
        width=int(logits.shape[-1]),
        outputs=_outputs(module),
        itemsize=logits.dtype.size,
        context=context,
        layers=layers,
        tape=_tape(module) if any(layer.state for layer in layers) else 0,
    )


@contextmanager
def _idle_experts(module: Any) -> Iterator[list[int]]:
    """Collect, for each layer of experts in the pass of one row that is built inside, the bytes of
    those that the row is not sent to."""
    idle: list[int] = []

    def counted(layer: Any, _: int) -> StandIn:
        def call(x: mx.array, indices: mx.array, *args: Any, **named: Any) -> Any:
            each = sum(array.nbytes for array in _arrays(layer.parameters())) // layer.num_experts
            idle.append(each * (layer.num_experts - indices.size))
            return layer(x, indices, *args, **named)

        return StandIn(layer, call)

    with replaced(list(places(module, lambda it: isinstance(it, EXPERT_LAYERS))), counted):
        yield idle


def _tape(module: Any) -> int:
    rows = 2
    with Recorder(module).recording(rows) as tape:
        module(mx.zeros((1, rows), mx.int32), cache=make_prompt_cache(module))
    return tape.nbytes // rows


def _outputs(module: Any) -> int:
    """Numbers that the projections of the largest layer put out for a row.

    The parts of a layer share the first number in their paths; what has none, like the embedding
    and the head, is in no layer.
    """
    experts = _largest(module, EXPERTS) or 1
    sums: dict[str, int] = {}
    parameters: Any = tree_flatten(module.parameters())
    for path, array in parameters:
        parts = path.split(".")
        layer = next((part for part in parts if part.isdigit()), None)
        if layer is not None and parts[-1] == "weight" and array.ndim >= 2:
            used = min(experts, array.shape[0]) if array.ndim == 3 else 1
            sums[layer] = sums.get(layer, 0) + used * array.shape[-2]
    return max(sums.values(), default=0)


def _largest(module: Any, names: tuple[str, ...]) -> int:
    """The largest whole number that a part of the model has under one of these names."""
    found = (getattr(part, name, 0) for part in module.modules() for name in names)
    return max((number for number in found if isinstance(number, int)), default=0)


def layer_estimate(cache: Any, query_heads: int) -> LayerEstimate:
    """What a layer's cache costs, after one token."""
    keys, values = getattr(cache, "keys", None), getattr(cache, "values", None)
    if isinstance(cache, KVCache | RotatingKVCache | ChunkedKVCache):
        if keys is None or values is None:
            return LayerEstimate()
        heads, head_size, value_size = keys.shape[1], keys.shape[3], values.shape[3]
        return LayerEstimate(
            values=heads * (head_size + value_size),
            itemsize=keys.dtype.size,
            window=getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None),
            group=group_size(head_size, value_size) if type(cache) is KVCache else None,
            heads=max(query_heads, heads),
            fused=on_metal() and head_size == value_size and head_size in FUSED_HEADS,
        )
    # Recurrent layers keep a state of fixed size.
    return LayerEstimate(state=sum(array.nbytes for array in _arrays(cache.state)))


def _arrays(tree: Any) -> list[mx.array]:
    leaves: list[Any] = list(dict(tree_flatten(tree)).values())
    return [leaf for leaf in leaves if isinstance(leaf, mx.array)]


@dataclass(frozen=True)
class MemoryPlan:
    """What a pair needs at a context, in bytes, and the limit it must stay under."""

    context: int
    weights: int
    caches: int
    buffers: int
    limit: int
    chunk: int = PREFILL_CHUNK
    """Most rows of a prefill pass."""

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.buffers

    @property
    def fits(self) -> bool:
        return self.total <= self.limit

    def __str__(self) -> str:
        return (
            f"{gigabytes(self.total)} (weights {gigabytes(self.weights)}, caches for "
            f"{self.context} positions {gigabytes(self.caches)}, buffers "
            f"{gigabytes(self.buffers)}) of the {gigabytes(self.limit)} available"
        )


@dataclass(frozen=True)
class Demand:
    """What a target and its draft, if it has one, ask of a device that gives ``limit`` bytes."""

    target: MemoryEstimate
    draft: MemoryEstimate | None
    limit: int
    kv_bits: int | None = None
    """Of the target's quantized cache; the draft's is never quantized."""

    def plan(self, context: int) -> MemoryPlan:
        """What both need at a context, with the largest prefill passes that fit."""
        plans = [self._plan(context, chunk) for chunk in PREFILL_CHUNKS]
        return next((plan for plan in plans if plan.fits), plans[-1])

    def _plan(self, context: int, chunk: int) -> MemoryPlan:
        target, draft, kv_bits = self.target, self.draft, self.kv_bits
        return MemoryPlan(
            context=context,
            weights=target.weights + (draft.weights if draft else 0),
            caches=self.caches(context),
            # Their passes take turns.
            buffers=max(
                target.buffers(context, kv_bits, chunk),
                draft.buffers(context, chunk=chunk) if draft else 0,
            ),
            limit=self.limit,
            chunk=chunk,
        )

    def caches(self, context: int) -> int:
        """Bytes of both models' caches with so many positions."""
        draft = self.draft
        drafting = draft.cache(context) + MAX_DEPTH * draft.state if draft else 0
        return self.target.cache(context, self.kv_bits) + drafting

    def longest(self, most: int) -> int:
        """The most positions that fit, in whole steps of the caches or ``most``; 0 for none."""

        def too_long(context: int) -> bool:
            return not self.plan(context).fits

        if not too_long(most):
            return most
        return bisect_left(range(STEP, most, STEP), True, key=too_long) * STEP


def fit(
    target: MemoryEstimate,
    draft: MemoryEstimate | None = None,
    *,
    context: int | None = None,
    kv_bits: int | None = None,
    held: int = 0,
) -> tuple[MemoryPlan, MemoryPlan | None]:
    """Choose the context, and whether to use the draft model, so that all fits into memory.

    An asked context is kept: if the pair does not fit, the target alone is planned. Without one
    the target's whole context is shortened, as long as at least ``LEAST`` positions remain.

    Args:
        context: positions asked for, None for as many as fit.
        held: bytes that other engines hold.

    Returns:
        The plan, and the plan that did not fit if the draft model had to be left out.

    Raises:
        OutOfMemoryError: the target does not fit even alone.
    """
    limit = max(device_limit() - held, 0)
    wanted = context or target.context
    refused = None
    for used in [draft, None] if draft is not None else [None]:
        demand = Demand(target, used, limit, kv_bits)
        whole = demand.plan(wanted)
        if whole.fits:
            return whole, refused
        longest = demand.longest(wanted)
        if context is None and longest >= min(LEAST, wanted):
            return demand.plan(longest), refused
        refused = whole
    shorter = f"a shorter context (--context {longest} fits), or " if longest else ""
    raise OutOfMemoryError(
        f"the target needs {whole}: choose {shorter}a smaller or more quantized model"
    )


def device_limit() -> int:
    """Bytes that a program should use: Metal's recommendation, CUDA's card, else the machine."""
    info = mx.device_info()
    limit = info.get("max_recommended_working_set_size") or info.get("total_memory")
    return int(limit or unified_memory())


def gigabytes(count: int) -> str:
    """Bytes for people, in units of 2**30 as macOS counts memory."""
    size = count / 2**30
    return f"{size:.1f} GB" if size >= 0.1 else f"{size:.3f} GB"


@contextmanager
def wired() -> Iterator[None]:
    """Keep the models' memory wired up to Metal's recommendation, then restore the limit.

    mlx-lm's ``wired_limit`` does the same but prints to standard output.
    """
    recommended = mx.device_info().get("max_recommended_working_set_size")
    if not recommended:
        yield
        return
    before = mx.set_wired_limit(int(recommended))
    try:
        yield
    finally:
        mx.synchronize()
        mx.set_wired_limit(before)
