"""Attention of a few rows over a long cache: keys and values are read once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import mlx.core as mx

from .kernel import TYPES, Kernel, Launch, constant, dtype_name

KERNEL = Kernel(
    "verify_attention",
    inputs=(
        "queries",
        *("keys", "key_scales", "key_biases"),
        *("values", "value_scales", "value_biases"),
        "sees",
        "scale",
    ),
    outputs=("out", "norms"),
    parts=("weights", "simdgroup"),
    strided=True,
)
JOIN = Kernel("verify_attention_join", inputs=("partial", "norms"), outputs=("out",))
KERNELS = (KERNEL, JOIN)

MOST_ROWS = 33
"""Of which a row sees, besides itself, some of the 32 before it: the bits of a word."""
WIDTHS = (64, 80, 96, 128, 192, 256)
"""Head sizes; of keys and of values, which may differ."""
CACHE_BITS = (2, 4, 8)
CACHE_GROUPS = (32, 64)
"""Of quantized keys and values."""
STRETCH = 256
"""Keys that one threadgroup is worth."""
MOST_GROUPS = 512
"""Threadgroups that fill any GPU; more would only make the join longer."""
MOST_BLOCKS = 64
MOST_SHARES = 4
SIMDGROUPS = 8
"""Of a threadgroup whose keys are divided: enough to hide what they wait for."""
ENOUGH_GROUPS = 64
"""Threadgroups that there must be for that: before, more of them are the better use of a GPU."""


class Packing(NamedTuple):
    """How a cache is quantized, as ``mx.quantize`` does; 0 bits: it is not."""

    bits: int = 0
    group_size: int = 0


PLAIN = Packing()
Held = mx.array | tuple[mx.array, mx.array, mx.array]
"""Keys or values as a cache holds them; quantized: words, scales and biases."""


def first(held: Held) -> mx.array:
    """The keys or values, or their words."""
    return held if isinstance(held, mx.array) else held[0]


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention as the layers of a model ask for it; of a certain context where it is measured."""

    query_heads: int
    heads: int
    width: int
    value_width: int
    dtype: mx.Dtype
    length: int = 0
    packing: Packing = PLAIN

    @classmethod
    def of(cls, queries: mx.array, keys: Held, values: Held, packing: Packing = PLAIN) -> Attention:
        """What the kernel sees of it, but for rows and length."""
        width = first(values).shape[-1]
        if packing.bits:
            width = width * 32 // packing.bits
        heads = queries.shape[1], first(keys).shape[1]
        return cls(*heads, queries.shape[-1], width, queries.dtype, packing=packing)

    def __str__(self) -> str:
        cache = f", {self.packing.bits}-bit cache" if self.packing.bits else ""
        at = f" at {self.length}" if self.length else ""
        return (
            f"{self.query_heads}:{self.heads} heads of {self._sizes}{cache}, "
            f"{dtype_name(self.dtype)}{at}"
        )

    @property
    def _sizes(self) -> str:
        return " and ".join(map(str, dict.fromkeys((self.width, self.value_width))))

    def unsupported(self, rows: int) -> str | None:
        """Why the kernel does not take this number of rows of it; None if it does."""
        if not 1 < rows <= MOST_ROWS:
            return f"{rows} rows: the kernel takes 2 to {MOST_ROWS}"
        if self.width not in WIDTHS or self.value_width not in WIDTHS:
            return f"heads of {self._sizes}: the kernel takes {', '.join(map(str, WIDTHS))}"
        bits, group = self.packing
        if bits and (bits not in CACHE_BITS or group not in CACHE_GROUPS):
            return f"a cache of {bits} bits in groups of {group}"
        if self.query_heads % self.heads:
            return f"{self.query_heads} query heads do not share {self.heads} heads of keys evenly"
        if self.dtype not in TYPES:
            return f"attention in {dtype_name(self.dtype)}: the kernel takes floats"
        return None


@lru_cache(maxsize=64)
def causal(rows: int) -> tuple[int, ...]:
    """The bits of a chain: every row sees those before it and itself."""
    return tuple(2 ** (row + 1) - 1 for row in range(rows))


@lru_cache(maxsize=256)
def _before(sees: tuple[int, ...]) -> mx.array:
    """As the kernel reads it: each row sees itself anyway."""
    return mx.array([bits & ~(1 << row) for row, bits in enumerate(sees)], mx.uint32)


def queries_together(width: int) -> int:
    """Rows times query heads that share one reading of keys and values."""
    # Wider accumulators leave registers for fewer simdgroups.
    return 128 if width <= 128 else 64


def _tiles(size: int) -> int:
    """Of 8 keys that threadgroup memory holds at a time; ``size`` in bytes of one."""
    return 4 if size <= 256 else 2 if size <= 512 else 1


def _shares(simdgroups: int, tiles: int) -> int:
    """Among how many simdgroups the keys that are held can be divided."""
    return next((it for it in (MOST_SHARES, 2) if it <= tiles and it * simdgroups <= SIMDGROUPS), 1)


def attention_call(
    queries: mx.array,
    keys: Held,
    values: Held,
    sees: tuple[int, ...],
    scale: float,
    packing: Packing = PLAIN,
) -> tuple[list[mx.array], Launch]:
    """The inputs of the first kernel and how it is launched."""
    _, query_heads, rows, width = queries.shape
    _, heads, length, _ = first(keys).shape
    value_width = Attention.of(queries, keys, values, packing).value_width
    lines = query_heads // heads * rows
    parts = -(-lines // queries_together(max(width, value_width)))
    simdgroups = -(-lines // (8 * parts))
    tiles = _tiles(max(width, value_width) * queries.dtype.size)
    share = _shares(simdgroups, tiles)
    if heads * parts * -(-length // (STRETCH * share)) < ENOUGH_GROUPS:
        share = 1
    most = min(MOST_BLOCKS, max(MOST_GROUPS // (heads * parts), 1)) // share
    blocks = min(-(-length // (STRETCH * share)), max(most, 1))
    stretches = blocks * share
    out = mx.float32 if stretches > 1 else queries.dtype
    launch = Launch(
        grid=(32 * simdgroups * share * heads * parts, blocks, 1),
        threadgroup=(32 * simdgroups * share, 1, 1),
        constants=(
            ("T", queries.dtype),
            ("U", out),
            ("D", width),
            ("E", value_width),
            ("SPLIT", stretches > 1),
            ("SHARE", share),
            ("PACKING", packing.bits | packing.group_size << 4),
        ),
        shapes=((stretches, query_heads, rows, value_width), (stretches, query_heads, rows, 2)),
        dtypes=(out, mx.float32),
        # Rows of keys and of values are 16 bytes apart.
        threadgroup_bytes=8 * tiles * ((width + value_width) * queries.dtype.size + 32),
    )
    constants = _before(sees), constant(scale, mx.float32)
    # What a plain cache has no scales and biases for is bound and not read.
    held = (part for it in (keys, values) for part in (it if packing.bits else (it, it, it)))
    return [queries, *held, *constants], launch  # type: ignore[list-item]


def join_launch(partial: mx.array, dtype: mx.Dtype) -> Launch:
    """How the blocks [blocks, query heads, rows, width] of a split pass become one."""
    _, query_heads, rows, width = partial.shape
    return Launch(
        grid=(32, query_heads * rows, 1),
        threadgroup=(32, 1, 1),
        constants=(("T", dtype), ("E", width)),
        shapes=((1, query_heads, rows, width),),
        dtypes=(dtype,),
    )


def verify_attention(
    queries: mx.array,
    keys: Held,
    values: Held,
    *,
    sees: tuple[int, ...],
    scale: float,
    packing: Packing = PLAIN,
) -> mx.array:
    """Attention of the newest rows on the GPU, in one launch or, for long contexts, two.

    Args:
        queries: [1, query heads, rows, width].
        keys, values: [1, heads, length, width], the rows of this pass included; slices of a cache
            are read where they lie. Quantized ones as ``packing`` says.
        sees: of each row the rows that it sees, itself included, bit i for row i; all rows see
            everything before the pass, and of the pass none after itself. See ``causal``.
        scale: of the products of queries and keys.

    Returns:
        [1, query heads, rows, width of the values], of the type of ``queries``.
    """
    out, norms = KERNEL(*attention_call(queries, keys, values, sees, scale, packing))
    if out.shape[0] == 1:
        return out
    return JOIN([out, norms], join_launch(out, queries.dtype))[0]


def mask(length: int, sees: Sequence[int]) -> mx.array:
    """``sees`` as a mask: bool [rows, length]."""
    rows = len(sees)
    bits = mx.array(list(sees), mx.uint64)[:, None] >> mx.arange(rows, dtype=mx.uint64)
    before = mx.ones((rows, length - rows), mx.bool_)
    return mx.concatenate([before, (bits & 1).astype(mx.bool_)], axis=1)


def plain(held: Held, packing: Packing) -> mx.array:
    """Keys or values in float32."""
    if isinstance(held, mx.array):
        return held.astype(mx.float32)
    words, scales, biases = held
    parts = scales.astype(mx.float32), biases.astype(mx.float32)
    return mx.dequantize(words, *parts, bits=packing.bits, group_size=packing.group_size)


def reference(
    queries: mx.array,
    keys: Held,
    values: Held,
    *,
    sees: tuple[int, ...],
    scale: float,
    packing: Packing = PLAIN,
) -> mx.array:
    """``verify_attention`` in plain MLX, in float32."""
    _, query_heads, rows, width = queries.shape
    _, heads, length, _ = first(keys).shape
    q = queries.astype(mx.float32).reshape(heads, query_heads // heads, rows, width) * scale
    k, v = (plain(held, packing)[0, :, None] for held in (keys, values))
    scores = mx.where(mask(length, sees), q @ k.swapaxes(-1, -2), -mx.inf)
    mixed = mx.softmax(scores, axis=-1) @ v
    return mixed.reshape(1, query_heads, rows, -1).astype(queries.dtype)


def fused_by_mlx(shape: Attention, rows: int) -> bool:
    """Whether MLX 0.32 computes it in one kernel: up to 8 rows in its vector kernel, which takes
    32 rows times query heads of a group, and more in its full one, for fewer head sizes."""
    if shape.packing.bits:
        return False
    if rows <= 8:
        return rows * (shape.query_heads // shape.heads) <= 32
    return shape.width == shape.value_width and shape.width in (64, 80, 128)
