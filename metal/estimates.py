"""What a kernel is expected to gain over MLX's, from bytes and instructions alone.

Nothing here was measured by macspec. A report of ``macspec check --kernels --json`` puts each
figure beside the measurement that confirms or refutes it. A kernel takes as long as the slower of
two things that overlap: reading its bytes, and issuing its instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import mlx.core as mx

from . import verify_attention
from .gated_delta import GatedDelta
from .mamba2 import Mamba2
from .matmul import AFFINE, QMM, QMM_ROWS, QMT, QMV, QMV_ROWS, STRICT, Matmul, packed_bytes
from .variants import CHOICE_ROWS, LEFT_TO_MLX, QMM_FROM, WALK_ROWS, Choice, Variant
from .verify_attention import Attention, Packing
from .walks import MARKOV, SELECTOR, Walk


@dataclass(frozen=True, slots=True)
class Chip:
    """A GPU.

    Attributes:
        bandwidth: bytes/s of memory, as Apple states it.
        cores: of the largest version.
        clock: Hz, as reported for it.
        slow: issue slots of a shift or a conversion; 4 on M1 and M2, assumed 2 from M3 on.
        wide: MLX has a kernel there that reads affine weights once for several rows
            (mlx #3764); it has one for its other modes everywhere.
        tensors: the GPU has tensor units.
    """

    bandwidth: float
    cores: int
    clock: float
    slow: int
    wide: bool
    tensors: bool

    @property
    def slots(self) -> float:
        """Instructions of one lane in a second: four simdgroups of 32 lanes a cycle and core."""
        return self.cores * self.clock * 128


def _chips() -> dict[str, Chip]:
    """By the name that MLX gives the device."""
    kinds = ("", " Pro", " Max", " Ultra")
    families = {
        "M1": ((68, 200, 400, 800), (8, 16, 32, 64), 1.3, 4),
        "M2": ((100, 200, 400, 800), (10, 19, 38, 76), 1.4, 4),
        "M3": ((100, 150, 400, 819), (10, 18, 40, 80), 1.4, 2),
        "M4": ((120, 273, 546), (10, 20, 40), 1.5, 2),
        "M5": ((153, 307, 614), (10, 20, 40), 1.6, 2),
    }
    return {
        f"Apple {name}{kind}": Chip(speed * 1e9, count, clock * 1e9, slow, slow == 2, name == "M5")
        for name, (speeds, counts, clock, slow) in families.items()
        for kind, speed, count in zip(kinds, speeds, counts, strict=False)
    }


CHIPS = _chips()


class Unpacking(NamedTuple):
    """Instructions for one weight: shifts and conversions; and others, a multiply-add as two."""

    slow: float
    fast: float


UNPACKING: dict[int | str, Unpacking] = {
    2: Unpacking(1 / 16, 5.5),
    3: Unpacking(1, 5),
    4: Unpacking(1 / 8, 5.25),
    5: Unpacking(1, 5),
    6: Unpacking(1, 5),
    8: Unpacking(1 / 4, 5.25),
    "mxfp4": Unpacking(7 / 8, 2.5),
    "mxfp8": Unpacking(5 / 4, 3),
    "nvfp4": Unpacking(7 / 8, 2.5),
}
"""By bits or mode, of ``weights.metal``; a test counts them in the optimised code."""
INPUTS = 0.5
"""Instructions for each weight and row beside its multiply-add: an input is shared by four."""
TILE = 8
"""Issue slots of a lane for one weight in the product of 8x8 matrices, if these take as long as
their multiply-adds."""
TENSOR_TILE = 2
"""The same for 16 rows in tensor units, if these are as fast beside the rest of the M5 as Apple
says: 1,024 multiply-adds of 16 bits a cycle and core."""
MLX_ROWS = {1: 1.0, 2: 1.03, 4: 1.47, 6: 2.07, 8: 2.69, 12: 3.9, 32: 3.9}
"""What rows cost in MLX 0.32 in units of one, on M3 and later: measured on an M4 Pro (mlx #3839)
and an M3 Max. M1 and M2 pay for each row, up to the matrix kernel, assumed to cost the same."""


LAUNCH = 3e-6
"""Seconds of a launch that waits for the one before: assumed."""


class Slots(NamedTuple):
    """Issue slots for a number of a state and a row: to take it in; for its output; and MLX's
    sums over simdgroups beside those."""

    fold: float
    output: float
    mlx: float


SCORE = 10
"""Issue slots of a score: scale, mask, largest, power and sum."""
MLX_TILE = 32
"""Rows of a query head that MLX's matrix kernels of attention fill up."""


class Choosing(NamedTuple):
    """What choosing takes: operations of the portable rule; launches of the kernels, and how often
    they read each logit."""

    operations: int
    launches: int
    reads: int


CHOOSING = {
    ("accept", "greedy", False): Choosing(8, 2, 1),
    ("accept", "drawn", False): Choosing(14, 2, 2),
    ("accept", "drawn", True): Choosing(36, 2, 9),
    ("accept", "block", False): Choosing(55, 2, 5),
    ("accept", "block", True): Choosing(99, 2, 12),
    ("draft_sample", "greedy", False): Choosing(5, 1, 1),
    ("draft_sample", "drawn", False): Choosing(11, 1, 2),
    ("draft_sample", "drawn", True): Choosing(33, 1, 9),
    ("draft_sample", "block", False): Choosing(11, 1, 3),
    ("draft_sample", "block", True): Choosing(33, 1, 10),
}
"""By kernel, rule, and whether top-k or top-p cut; a test counts the operations."""
SELECTING, PAIRING = 69, 10
"""Operations for a row of the portable walk over candidates, and of that by a table."""


def expected(variant: Variant, chip: Chip) -> float:
    """How many times as fast as MLX's a variant should be."""
    shape = variant.shape
    if isinstance(shape, Matmul):
        ours = _matmul(variant.kernel, shape, variant.rows, chip)
        return _mlx_matmul(shape, variant.rows, chip) / ours
    if isinstance(shape, Attention):
        return _attention(shape, variant.rows, chip)
    if isinstance(shape, GatedDelta | Mamba2):
        return _recurrence(shape, variant.rows, chip)
    if isinstance(shape, Choice):
        return _choice(variant, shape, chip)
    return _walk(variant, shape, chip)


def _seconds(count: float, size: float, slots: float, chip: Chip) -> float:
    """Of so many bytes and of so many weights with so many slots each."""
    return max(size / chip.bandwidth, count * slots / chip.slots)


def _matmul(kernel: str, shape: Matmul, rows: int, chip: Chip) -> float:
    affine = shape.mode == AFFINE
    slow, fast = UNPACKING[shape.bits if affine else shape.mode]
    unpacking = slow * chip.slow + fast - affine
    if kernel == QMM.name:
        tiles = -(-min(rows, QMM_ROWS) // 8)
        slots = unpacking + tiles * (TILE + INPUTS)
    elif kernel == QMT.name:
        tiles = -(-min(rows, QMM_ROWS) // 16)
        slots = unpacking + 1 + tiles * (TENSOR_TILE + INPUTS)  # Each weight is rounded, too.
    elif kernel == STRICT:
        tiles = -(-rows // QMV_ROWS)
        # A mask and its share of a shift, to half and to float.
        slots = tiles * (2 + 2 * chip.slow) + rows * (1 + INPUTS)
        return _seconds(shape.inputs * shape.outputs, tiles * packed_bytes(shape), slots, chip)
    else:
        slots = unpacking + min(rows, QMV_ROWS) * (1 + INPUTS)
    return _seconds(shape.inputs * shape.outputs, packed_bytes(shape), slots, chip)


def _mlx_matmul(shape: Matmul, rows: int, chip: Chip) -> float:
    # A mask, a conversion and a multiply-add for each weight.
    one = _seconds(shape.inputs * shape.outputs, packed_bytes(shape), 2 + chip.slow, chip)
    wide = _between(MLX_ROWS, rows)
    several = chip.wide or shape.mode != AFFINE
    return one * (wide if several else max(wide, min(rows, QMV_ROWS)))


def _between(points: dict[int, float], at: int) -> float:
    """On the straight line between the points around it."""
    for (low, first), (high, last) in pairwise(points.items()):
        if low <= at <= high:
            return first + (last - first) * (at - low) / (high - low)
    return points[max(points)]


def _attention(shape: Attention, rows: int, chip: Chip) -> float:
    """Of one key and its value, of all heads."""
    bits, packed = shape.packing
    width, group = shape.width + shape.value_width, shape.query_heads // shape.heads
    # Of a number; a quantized one has its share of a scale and a bias.
    each = bits / 8 + 2 * shape.dtype.size / packed if bits else shape.dtype.size
    count, lines = shape.heads * width, rows * group
    size = count * each
    # Of a number and a tile of 8 lines: its product, its way from threadgroup memory, and a share
    # of what 8 scores take.
    tile = TILE + 1 + chip.slow + 8 * SCORE / width
    widest = max(shape.width, shape.value_width)
    readings = -(-lines // verify_attention.queries_together(widest))
    staged = 4 + chip.slow if bits else 2
    ours = _seconds(count, size * readings, readings * staged + -(-lines // 8) * tile, chip)
    fused = verify_attention.fused_by_mlx(shape, rows)
    # Scores are written, read by softmax, written, and read again.
    scores = 0 if fused else 4 * shape.query_heads * rows * shape.dtype.size
    if bits or (fused and rows <= 8):
        # Each line loads and converts by itself, or takes what products of its rows take.
        together = _quantized_rows(rows, chip) if bits else rows
        slots = group * together * (2 + chip.slow)
    else:
        slots = group * -(-rows // MLX_TILE) * (MLX_TILE // 8) * tile
    return _seconds(count, size + scores, slots, chip) / ours


def _quantized_rows(rows: int, chip: Chip) -> float:
    """What the rows of a head cost in MLX's two products with a quantized cache, in units of one:
    that with the values is a matrix product from 4 rows on."""
    wide, matrix = _between(MLX_ROWS, rows), MLX_ROWS[32]
    keys = wide if chip.wide else max(wide, min(rows, QMV_ROWS))
    return (keys + (rows if rows < 4 else matrix)) / 2


def _recurrence(shape: GatedDelta | Mamba2, rows: int, chip: Chip) -> float:
    """As many rows stay of the pass before as in the self-check: MLX takes those once more."""
    if isinstance(shape, GatedDelta):
        kept, count = rows // 2, shape.heads * shape.width * shape.value_width
        cost = Slots(4 + chip.slow, 2 + chip.slow, 5)
    else:
        kept, count = rows - 1, shape.heads * shape.width * shape.state
        # A lane has four lines, which share what it loads; a line's sum is spread over its lanes.
        shared, summed = (1 + chip.slow) / 4, 10 * 32 / shape.state
        cost = Slots(2 + shared, 1 + shared + summed, 0)

    def launch(slots: float) -> float:
        return LAUNCH + _seconds(count, 8 * count, slots, chip)

    row = cost.fold + cost.output
    again = launch(kept * (row + cost.mlx)) if kept else 0
    return (again + launch(rows * (row + cost.mlx))) / launch(kept * cost.fold + rows * row)


def _choice(variant: Variant, shape: Choice, chip: Chip) -> float:
    """Half of the portable operations read and write all rows in float32; a row's threadgroup has
    the bandwidth of one core."""
    operations, launches, reads = CHOOSING[variant.kernel, shape.rule, shape.truncated]
    rows = variant.rows * shape.width
    theirs = operations * (LAUNCH + rows * 4 / chip.bandwidth)
    share = chip.bandwidth / chip.cores
    return theirs / (launches * LAUNCH + reads * shape.width * shape.dtype.size / share)


def _walk(variant: Variant, shape: Walk, chip: Chip) -> float:
    """A row of the selector's launch takes as long as a launch; a table is read once either way."""
    if shape.kernel == SELECTOR.name:
        return SELECTING * variant.rows / (1 + variant.rows)
    table = shape.choices * shape.rank * shape.dtype.size / chip.bandwidth
    return (PAIRING * LAUNCH + table) / (LAUNCH + table)


SHOWN = ("M1", "M1 Max", "M2", "M3", "M4", "M4 Pro", "M5")
FAMILIES = ("M1", "M2", "M3", "M4", "M5")
SHOWN_ROWS = (2, 4, 6, 8, 12, 16)
BF16 = mx.bfloat16
PRODUCT = Matmul(4, 64, 4096, 12288, BF16)
HEADS = Attention(32, 8, 128, 128, BF16, 8192)
ATTENDED = {
    "plain": HEADS,
    "plain, 64:8": replace(HEADS, query_heads=64),
    "8 bits": replace(HEADS, packing=Packing(8, 64)),
    "4 bits": replace(HEADS, packing=Packing(4, 64)),
}
STATES = {
    "gated_delta": GatedDelta(16, 48, 128, 128, False, BF16),
    "mamba2": Mamba2(128, 8, 64, 128, BF16, (mx.float32, mx.float32)),
}


def choosing_table() -> str:
    """What to expect of choosing among 151,936 ids in bfloat16 by chip, as Markdown."""

    def line(kernel: str, rule: str, truncated: bool) -> tuple[str, ...]:
        shape = Choice(rule, truncated, 151_936, BF16)
        variant = Variant(kernel, shape, CHOICE_ROWS[kernel])
        cells = (f"{expected(variant, CHIPS[f'Apple {it}']):.1f}" for it in SHOWN)
        return f"`{kernel}`", f"{rule}{', truncated' * truncated}", *cells

    return _markdown(("kernel", "rule"), SHOWN, (line(*it) for it in CHOOSING))


def products_table() -> str:
    """What to expect of 4-bit matrices in bfloat16 by chip and rows, as Markdown."""
    most = {QMV.name: (2, QMV_ROWS), STRICT: (2, 16)}
    return _by_rows(
        ("chip", "kernel"),
        (
            (name, f"`{kernel}`", kernel, PRODUCT, *most.get(kernel, (QMM_FROM, QMM_ROWS)))
            for name in SHOWN
            for kernel in (QMV.name, STRICT, QMM.name, QMT.name)
            if kernel != QMT.name or CHIPS[f"Apple {name}"].tensors
        ),
    )


def attention_table() -> str:
    """What to expect of attention by chip, cache and rows, as Markdown."""
    name = verify_attention.KERNEL.name
    lines = ((chip, what, name, it, 2, 16) for chip in FAMILIES for what, it in ATTENDED.items())
    return _by_rows(("chip", "cache"), lines)


def recurrences_table() -> str:
    """What to expect of recurrences by chip and rows, as Markdown."""
    lines = (
        (chip, f"`{name}`", name, it, 2, 16) for chip in FAMILIES for name, it in STATES.items()
    )
    return _by_rows(("chip", "kernel"), lines)


def accept_table() -> str:
    """What to expect of a drawn verdict by chip and rows, as Markdown."""
    shape = Choice("drawn", False, 151_936, BF16)
    lines = ((chip, "drawn", "accept", shape, 2, 16) for chip in FAMILIES)
    return _by_rows(("chip", "rule"), lines)


def walks_table() -> str:
    """What to expect of walks along a block of 7 rows by chip, as Markdown."""

    def line(what: str, shape: Walk) -> tuple[str, ...]:
        variant = Variant(shape.kernel, shape, WALK_ROWS)
        return what, *(f"{expected(variant, CHIPS[f'Apple {it}']):.1f}" for it in SHOWN)

    kinds = {
        "`selector_walk`": Walk(SELECTOR.name, 32, 256, 32_000, BF16),
        "`markov_row`, 32,000 ids": Walk(MARKOV.name, 32_000, 256, 32_000, BF16),
        "`markov_row`, 151,936 ids": Walk(MARKOV.name, 151_936, 256, 151_936, BF16),
    }
    return _markdown(("kernel",), SHOWN, (line(*it) for it in kinds.items()))


TABLES = (
    products_table,
    attention_table,
    recurrences_table,
    choosing_table,
    accept_table,
    walks_table,
)
"""Those of the page, which ``python -m macspec.metal.estimates`` prints."""

Line = tuple[str, str, str, Any, int, int]
"""Chip, what, kernel, shape, fewest and most rows."""


def _by_rows(heads: Sequence[str], lines: Iterable[Line]) -> str:
    """Where chips in a row have the same figures, they share a line."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, what, kernel, shape, least, most in lines:
        chip = CHIPS[f"Apple {name}"]
        left = LEFT_TO_MLX if chip.wide and kernel in (QMV.name, QMM.name, QMT.name) else ()
        cells = (
            f"{expected(Variant(kernel, shape, rows), chip):.1f}"
            if least <= rows <= most and rows not in left
            else ""
            for rows in SHOWN_ROWS
        )
        found.setdefault((what, *cells), []).append(name)
    table = ((", ".join(names), *line) for line, names in found.items())
    return _markdown(heads, tuple(f"{rows} rows" for rows in SHOWN_ROWS), table)


def _markdown(
    heads: Sequence[str], numbers: Sequence[str], lines: Iterable[tuple[str, ...]]
) -> str:
    rule = (*("---" for _ in heads), *("---:" for _ in numbers))
    table = ((*heads, *numbers), rule, *lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


if __name__ == "__main__":
    print("\n".join(table() for table in TABLES))
