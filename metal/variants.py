"""What a kernel can be asked for: the unit that is proved, measured and chosen."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

QMV, QMM, STRICT = "verify_qmv", "verify_qmm", "verify_qmv strict"
ATTENTION = "verify_attention"
ACCEPT, SAMPLE = "accept", "draft_sample"

PRODUCT_ROWS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
"""A product of other rows is judged by the next of these; its text is the same."""
ATTENTION_ROWS = (2, 4, 8, 16)
CHOICE_ROWS = {ACCEPT: 5, SAMPLE: 1}
LENGTHS = (1024, 8192)
"""Contexts at which attention is measured; one between them is judged by the nearer by ratio."""


@dataclass(frozen=True, slots=True)
class Product:
    """Rows times one quantized matrix, as far as kernels tell matrices apart."""

    bits: int
    group_size: int
    inputs: int
    outputs: int
    dtype: mx.Dtype

    def __str__(self) -> str:
        return (
            f"{self.bits}-bit, groups of {self.group_size}, {self.inputs} to {self.outputs}, "
            f"{name_of(self.dtype)}"
        )


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention as the layers of a model ask for it; of a certain context where it is measured."""

    query_heads: int
    heads: int
    width: int
    value_width: int
    dtype: mx.Dtype
    length: int = 0

    def __str__(self) -> str:
        widths = sorted({self.width, self.value_width})
        size = " and ".join(map(str, widths))
        at = f" at {self.length}" if self.length else ""
        return f"{self.query_heads}:{self.heads} heads of {size}, {name_of(self.dtype)}{at}"


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
        return f"{self.rule}{cut}, {self.width} ids, {name_of(self.dtype)}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel, for one shape and number of rows."""

    kernel: str
    shape: Product | Attention | Choice
    rows: int

    def __str__(self) -> str:
        return f"{self.kernel}: {self.shape}, {self.rows} row{'s' * (self.rows > 1)}"


def name_of(dtype: mx.Dtype) -> str:
    """As users know it: float16."""
    return str(dtype).removeprefix("mlx.core.")


def at_least(rows: int, points: tuple[int, ...]) -> int | None:
    """The number of rows that stands for so many; None beyond the last."""
    return next((point for point in points if point >= rows), None)


def product_rows(rows: int, *, strict: bool) -> int | None:
    """The number of rows under which a product was proved."""
    if strict:
        # Whole tiles of at most eight rows.
        return -(-rows // -(-rows // 8)) if rows > 1 else None
    return at_least(rows, PRODUCT_ROWS) if rows > 1 else None


def length_of(length: int) -> int:
    """The context under which attention was proved."""
    short, long = LENGTHS
    return short if length * length < short * long else long
