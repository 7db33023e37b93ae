"""What the verify passes of a pair ask of kernels, found by building one without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear

from macspec.cache import ModelCache

from . import affine, rows, verify_attention, verify_qmv
from .affine import Matrix
from .expected import CHOICES
from .hooks import Hooks
from .variants import (
    ACCEPT,
    ATTENTION,
    ATTENTION_ROWS,
    CHOICE_ROWS,
    LENGTHS,
    PRODUCT_ROWS,
    QMM,
    QMV,
    SAMPLE,
    STRICT,
    Attention,
    Choice,
    Product,
    Variant,
)

ROWS = 2
FROM_QMM = 6
"""Rows from which matrices of 8 rows can pay."""


@dataclass(frozen=True)
class Survey:
    """What passes of one model ask for."""

    products: dict[Product, Matrix] = field(default_factory=dict)
    """With a matrix of the model for each."""
    attentions: set[Attention] = field(default_factory=set)
    kept: list[str] = field(default_factory=list)
    """What keeps MLX's kernels and why, each a line for the user."""
    logits: mx.Dtype = mx.float32


class _Recorder:
    """Lets MLX do everything, and remembers what it was."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self.others: set[str] = set()
        self.met = 0

    def product(self, leaf: Module, x: mx.array) -> None:
        matrix = matrix_of(leaf)
        if matrix is None:
            mode: Any = leaf.mode
            self.others.add(f"matrices in {mode}: only affine ones have kernels")
        elif why := affine.supports(matrix, x.dtype):
            self.others.add(f"{matrix.bits}-bit matrices: {why}")
        else:
            self._survey.products.setdefault(product_of(matrix, x.dtype), matrix)

    def attention(
        self, queries: Any, keys: Any, values: Any, scale: float, mask: Any, sinks: Any
    ) -> None:
        self.met += 1
        if sinks is not None:
            self.others.add("attention: it has sinks")
        elif queries.shape[0] == 1:
            found = attention_of(queries, keys, values)
            if why := why_not(found, ROWS):
                self.others.add(f"attention: {why}")
            else:
                self._survey.attentions.add(found)


def survey(module: Any) -> Survey:
    """Build a pass of a model, evaluate nothing, and see what it asks for."""
    hooks = Hooks(module)
    found = Survey(logits=mx.float32)
    recorder = _Recorder(found)
    layers = ModelCache(module).layers
    with hooks.handled(recorder):
        logits = module(mx.zeros((1, ROWS), mx.int32), cache=layers)
    kinds = {type(leaf).__name__ for leaf in module.modules()}
    if "QuantizedSwitchLinear" in kinds:
        recorder.others.add("experts: their matrices are chosen row by row")
    if any(type(leaf) is Linear for leaf in module.modules()):
        recorder.others.add("matrices that are not quantized")
    if not recorder.met:
        recorder.others.add("attention: the model calls it where it cannot be taken over")
    found.kept.extend(sorted(recorder.others))
    return Survey(found.products, found.attentions, found.kept, logits.dtype)


def matrix_of(leaf: Any) -> Matrix | None:
    """A leaf's matrix, as the kernels take it; None if it is of another kind."""
    if leaf.mode != "affine":
        return None
    return Matrix(leaf["weight"], leaf["scales"], leaf["biases"], leaf.group_size, leaf.bits)


def product_of(matrix: Matrix, dtype: mx.Dtype) -> Product:
    """What kernels see of it."""
    return Product(matrix.bits, matrix.group_size, matrix.inputs, matrix.outputs, dtype)


def attention_of(queries: mx.array, keys: mx.array, values: mx.array) -> Attention:
    """What the kernel sees of it, but for rows and length."""
    return Attention(
        queries.shape[1], keys.shape[1], queries.shape[-1], values.shape[-1], queries.dtype
    )


def why_not(attention: Attention, count: int) -> str | None:
    """Why the kernel does not take so many rows of this attention; None if it does."""
    return verify_attention.supports(
        count,
        attention.query_heads,
        attention.heads,
        attention.width,
        attention.value_width,
        attention.dtype,
    )


def variants(
    found: Survey, draft: Survey | None, vocabulary: int, *, strict: bool
) -> list[Variant]:
    """Every variant that sessions of a pair could use.

    Args:
        found, draft: what its target, and its draft model, ask for.
        vocabulary: ids that it can emit.
        strict: only products that keep the order of MLX's one-row kernels.
    """
    every: list[Variant] = []
    for product, matrix in found.products.items():
        every.extend(_of_product(product, matrix, strict))
    if not strict:
        every.extend(
            Variant(ATTENTION, replace(attention, length=length), count)
            for attention in sorted(found.attentions, key=str)
            for count in ATTENTION_ROWS
            for length in LENGTHS
        )
    every.extend(_of_choices(ACCEPT, vocabulary, found.logits))
    if draft is not None:
        every.extend(_of_choices(SAMPLE, vocabulary, draft.logits))
    return every


def _of_product(product: Product, matrix: Matrix, strict: bool) -> Iterator[Variant]:
    for count in PRODUCT_ROWS:
        if strict:
            if count <= verify_qmv.MOST_ROWS and not verify_qmv.supports(
                matrix, count, product.dtype, strict=True
            ):
                yield Variant(STRICT, product, count)
            continue
        if count <= verify_qmv.MOST_ROWS:
            yield Variant(QMV, product, count)
        if count >= FROM_QMM:
            yield Variant(QMM, product, count)


def _of_choices(kernel: str, width: int, dtype: mx.Dtype) -> Iterator[Variant]:
    if width > rows.MOST_WIDTH or dtype not in rows.TYPES:
        return
    for rule, truncated in CHOICES:
        yield Variant(kernel, Choice(rule, truncated, width, dtype), CHOICE_ROWS[kernel])
