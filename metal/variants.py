"""What the verify passes of a pair ask of kernels: the variants to check and choose from.

A pass of the model is built but never run; what it multiplies and attends to is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear

from macspec.cache import ModelCache
from macspec.models import Pair
from macspec.pending import Functions, handled

from . import accept, matmul, verify_attention
from .gated_delta import GatedDelta
from .hooks import Hooks
from .kernel import TYPES, dtype_name
from .mamba2 import Mamba2
from .matmul import QMM, QMT, QMV, STRICT, Matmul, Matrix
from .recurrences import NETS
from .verify_attention import Attention, Packing
from .walks import MARKOV, Walk

ATTENTION = verify_attention.KERNEL.name
ACCEPT, SAMPLE = "accept", "draft_sample"

PROBE_ROWS = 2
"""Of the pass that is built to see what it asks for."""
MATMUL_ROWS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
"""A matmul of other rows is judged by the next of these; its text is the same."""
SOON_ROWS = 6
"""Of the passes of common depths, whose variants are checked first."""
LEFT_TO_MLX = (2, 32)
"""Of affine matmuls that are left to MLX where it takes rows together: 2 cost as much as one there,
and 32 fill its tiles."""
QMM_FROM = 6
"""Rows from which matrices of 8 rows can pay."""
ATTENTION_ROWS = (2, 4, 8, 12, 17, 33)
RECURRENCE_ROWS = (2, 4, 8, 16)
CHOICE_ROWS = {ACCEPT: 5, SAMPLE: 1}
WALK_ROWS = 7
"""Of a block."""
LENGTHS = (1024, 8192)
"""Contexts at which attention is measured; one between them is judged by the nearer by ratio."""

CHOICES = (
    ("greedy", False),
    ("drawn", False),
    ("drawn", True),
    ("block", False),
    ("block", True),
)
"""Rule, and whether top-k and top-p cut."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Choosing tokens: by which rule, and whether top-k or top-p cut."""

    rule: str
    """greedy, drawn or block."""
    truncated: bool
    width: int
    dtype: mx.Dtype

    def __str__(self) -> str:
        cut = ", truncated" if self.truncated else ""
        return f"{self.rule}{cut}, {self.width} ids, {dtype_name(self.dtype)}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel, for one shape and number of rows."""

    kernel: str
    shape: Matmul | Attention | Choice | GatedDelta | Mamba2 | Walk
    rows: int

    def __str__(self) -> str:
        return f"{self.kernel}: {self.shape}, {self.rows} row{'s' * (self.rows > 1)}"


@dataclass
class Workload:
    """What the passes of one model ask for; it records them and leaves everything to MLX."""

    matmuls: Counter[Matmul] = field(default_factory=Counter)
    """Each with how many matrices there are."""
    attentions: set[Attention] = field(default_factory=set)
    recurrences: dict[str, set[GatedDelta | Mamba2]] = field(default_factory=dict)
    """By kernel."""
    others: set[str] = field(default_factory=set)
    logits: mx.Dtype = mx.float32
    attended: bool = False
    """Whether attention was called where a kernel can be substituted."""

    @property
    def unsupported(self) -> list[str]:
        """What keeps MLX's kernels and why, each a line for the user."""
        return sorted(self.others)

    def copies(self, variant: Variant) -> int:
        """Matrices of its shape."""
        return self.matmuls[variant.shape] if isinstance(variant.shape, Matmul) else 1

    def matmul(self, layer: Module, x: mx.array) -> None:
        matrix = matrix_of(layer)
        if why := matmul.supports(matrix, x.dtype):
            self.others.add(f"{matrix.bits}-bit matrices: {why}")
        else:
            self.matmuls[matrix.shape(x.dtype)] += 1

    def attention(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        scale: float,
        mask: Any,
        sinks: Any,
        packing: Packing,
    ) -> None:
        self.attended = True
        if sinks is not None:
            self.others.add("attention: it has sinks")
        elif queries.shape[0] == 1:
            found = Attention.of(queries, keys, values, packing)
            if why := found.unsupported(PROBE_ROWS):
                self.others.add(f"attention: {why}")
            else:
                self.attentions.add(found)

    def called(self, stock: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        net = next(net for net in NETS if net.stock == stock)
        self.recurrences.setdefault(net.kernel, set()).add(net.shape(net.rows(arguments)))
        return stock(**arguments)


def variants_for(
    pair: Pair, *, strict: bool = False, kv_bits: int | None = None
) -> tuple[Workload, list[Variant]]:
    """What the target's passes ask for, and every variant that sessions of the pair could use.

    Args:
        strict: only matmuls that keep the order of MLX's one-row kernels.
        kv_bits: of the sessions' cache, if it is quantized.
    """
    target = workload(pair.target.module, kv_bits)
    found = [variant for shape in target.matmuls for variant in _of_matmul(shape, strict)]
    if not strict:
        found += [
            Variant(ATTENTION, replace(attention, length=length), count)
            for attention in sorted(target.attentions, key=str)
            for count in ATTENTION_ROWS
            for length in LENGTHS
        ]
    found += [
        Variant(kernel, shape, count)
        for kernel, shapes in target.recurrences.items()
        for shape in sorted(shapes, key=str)
        for count in RECURRENCE_ROWS
    ]
    found += _of_choices(ACCEPT, pair.vocabulary, target.logits)
    if pair.draft is not None:
        found += _of_choices(SAMPLE, pair.vocabulary, workload(pair.draft.module).logits)
    elif pair.head is not None:
        walk = Walk.of(pair.head.module, pair.vocabulary)
        if walk is not None:
            found.append(Variant(walk.kernel, walk, WALK_ROWS))
        by_row = walk is not None and walk.kernel == MARKOV.name
        found += _of_choices(SAMPLE, pair.vocabulary, mx.float32 if by_row else target.logits)
    return target, found


def _of_matmul(shape: Matmul, strict: bool) -> Iterator[Variant]:
    if strict and matmul.another_order(shape) is not None:
        return
    affine = shape.mode == matmul.AFFINE
    left = LEFT_TO_MLX if affine and not strict and matmul.mlx_takes_rows_together() else ()
    for count in (it for it in MATMUL_ROWS if it not in left):
        if count <= matmul.QMV_ROWS:
            yield Variant(STRICT if strict else QMV.name, shape, count)
        if count >= QMM_FROM and not strict:
            yield Variant(QMM.name, shape, count)
            if shape.dtype in matmul.TENSOR_TYPES and matmul.has_tensor_units():
                yield Variant(QMT.name, shape, count)


def _of_choices(kernel: str, width: int, dtype: mx.Dtype) -> list[Variant]:
    if width > accept.MOST_WIDTH or dtype not in TYPES:
        return []
    return [
        Variant(kernel, Choice(rule, truncated, width, dtype), CHOICE_ROWS[kernel])
        for rule, truncated in CHOICES
    ]


def workload(module: Any, kv_bits: int | None = None) -> Workload:
    """Build a pass of a model, evaluate nothing, and record what it asks for."""
    found = Workload()
    layers = ModelCache(module, kv_bits=kv_bits).layers
    functions = Functions(module, [net.stock for net in NETS])
    with Hooks(module).handled(found), functions.held(), handled(found):
        found.logits = module(mx.zeros((1, PROBE_ROWS), mx.int32), cache=layers).dtype
    for kernel, shapes in list(found.recurrences.items()):
        if whys := [it.unsupported for it in shapes if it.unsupported]:
            # A state must not be one pass late in some layers only.
            found.others.update(f"recurrence: {why}" for why in whys)
            del found.recurrences[kernel]
    parts = list(module.modules())
    if any(type(part).__name__ == "QuantizedSwitchLinear" for part in parts):
        found.others.add("experts: their matrices are chosen row by row")
    if any(type(part) is Linear for part in parts):
        found.others.add("matrices that are not quantized")
    if not found.attended:
        found.others.add("attention: the model calls it where no kernel can be substituted")
    return found


def matrix_of(layer: Any) -> Matrix:
    """A quantized layer's matrix, as the kernels take it."""
    arrays = layer["weight"], layer["scales"], layer.get("biases")
    return Matrix(*arrays, layer.group_size, layer.bits, layer.mode)


def at_least(rows: int, points: tuple[int, ...]) -> int | None:
    """The first of the points that is no smaller than ``rows``; None beyond the last."""
    return next((point for point in points if point >= rows), None)


def matmul_rows(rows: int, *, strict: bool) -> int | None:
    """The number of rows under which a matmul was checked."""
    if strict:
        # Whole tiles of at most eight rows.
        return -(-rows // -(-rows // 8)) if rows > 1 else None
    return at_least(rows, MATMUL_ROWS) if rows > 1 else None


def length_of(length: int) -> int:
    """The context under which attention was checked."""
    short, long = LENGTHS
    return short if length * length < short * long else long


def urgent(variant: Variant) -> bool:
    """Whether the next replies may use a variant; the others are rare: deep passes."""
    most = {QMM.name: 0, QMT.name: 0, ATTENTION: 8}.get(variant.kernel, SOON_ROWS)
    most = WALK_ROWS if isinstance(variant.shape, Walk) else most
    return variant.rows <= most
