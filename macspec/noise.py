"""Counter-based noise: every random number of a reply is a hash of where it is used.

The bits are defined here once, so that any drafter and any kernel can compute the same numbers.
Arithmetic is modulo 2^32, ``>>`` the logical shift.

    mix(x):   x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16
    key(c)   = h = 0;  for w in  seed mod 2^32, seed >> 32, stream, position, draw:
                   h = mix((h ^ w) + c)
    k0, k1   = key(0x9e3779b9),  key(0x85ebca6b)
    bits(id) = mix(mix(id * 0x9e3779b9 + k0) ^ k1)

``mix`` is the *lowbias32* finaliser of Chris Wellons' hash-prospector. For a fixed row ``bits`` is
a bijection of the token id. A uniform is ``u = min((bits + 0.5) * 2^-32, 1 - 2^-24)`` in float32
and a Gumbel variate ``-log(-log1p(-u))``: the large values, which decide a draw, come from small
``u``, where float32 is finest.

``position`` is the index in the token sequence of the token that is drawn. The target's stream
depends on seed and position alone, whatever was drafted; the other streams carry ``draw``, the
number of the pass within the reply, so that a position that is drafted twice gets fresh numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .device import on_gpu

MAX_SEED = 2**64 - 1

TARGET = 0
"""Draws of the target's own tokens; shared with the drafter under the keyed rule."""
DRAFT = 1
"""Draws of a draft model that samples on its own."""
ACCEPT = 2
"""Uniforms of the block rule."""
RESIDUAL = 3
"""The block rule's correction or bonus token."""

AHEAD = 4
"""Positions for which the host computes the target's stream at once: it takes less time for each,
and none for a position that comes again after a rejection."""

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
_SECOND = 0x85EBCA6B


def _mix(x: int) -> int:
    x ^= x >> 16
    x = (x * 0x7FEB352D) & _MASK
    x ^= x >> 15
    x = (x * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def row_key(seed: int, stream: int, position: int, draw: int = 0) -> tuple[int, int]:
    """The two words that key the noise of one row; keys of one word would soon meet by chance."""
    k0 = k1 = 0
    for word in (seed & _MASK, seed >> 32, stream, position, draw):
        k0 = _mix(((k0 ^ word) + _GOLDEN) & _MASK)
        k1 = _mix(((k1 ^ word) + _SECOND) & _MASK)
    return k0, k1


def _mix_array(x: Any, xp: Any) -> Any:
    x = (x ^ (x >> 16)) * xp.array(0x7FEB352D, xp.uint32)
    x = (x ^ (x >> 15)) * xp.array(0x846CA68B, xp.uint32)
    return x ^ (x >> 16)


def bits(keys: Any, ids: Any, xp: Any = mx) -> Any:
    """Hash bits [rows, n] uint32 for row keys [rows, 2] uint32 and token ids [n] uint32.

    Args:
        xp: ``mlx.core`` or ``numpy``, whichever the arrays are of; the bits are the same.
    """
    spread = ids * xp.array(_GOLDEN, xp.uint32)
    return _mix_array(_mix_array(spread[None] + keys[:, :1], xp) ^ keys[:, 1:], xp)


def to_uniform(raw: Any, xp: Any = mx) -> Any:
    """Uniforms in (0, 1) float32 from hash bits uint32, any shape."""
    return xp.minimum((raw.astype(xp.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)


def to_gumbel(raw: Any, xp: Any = mx) -> Any:
    """Standard Gumbel variates float32 from hash bits uint32, any shape."""
    return -xp.log(-xp.log1p(-to_uniform(raw, xp)))


@lru_cache(maxsize=4)
def _ids(width: int) -> NDArray[np.uint32]:
    return np.arange(width, dtype=np.uint32)


def _computed(keys: Sequence[tuple[int, int]], width: int) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = to_gumbel(bits(np.array(keys, np.uint32), _ids(width), np), np)
    return rows


@lru_cache(maxsize=4)
def _ahead(seed: int, block: int, width: int) -> NDArray[np.float32]:
    """Gumbel noise [AHEAD, width] of the target's stream at the block's positions."""
    positions = range(block * AHEAD, (block + 1) * AHEAD)
    return _computed([row_key(seed, TARGET, it) for it in positions], width)


@dataclass(eq=False)
class Noise:
    """The random numbers of one pass."""

    seed: int
    draw: int
    """Number of the pass within the reply."""
    position: int
    """Index in the token sequence of the first token this pass can emit."""
    rows: int
    """Row i belongs to the token at ``position + i``."""
    width: int
    """Size of the vocabulary."""
    _gumbel: dict[int, mx.array] = field(default_factory=dict, init=False)

    def _keys(self, stream: int, rows: int) -> list[tuple[int, int]]:
        draw = 0 if stream == TARGET else self.draw
        return [row_key(self.seed, stream, self.position + row, draw) for row in range(rows)]

    def gumbel(self, stream: int) -> mx.array:
        """Gumbel noise [rows, width]; the same array for every user of the stream."""
        if stream not in self._gumbel:
            self._gumbel[stream] = self.gumbel_rows(stream, self.rows)
        return self._gumbel[stream]

    def gumbel_row(self, stream: int) -> mx.array:
        """Gumbel noise [width] of the pass's first row."""
        return self.gumbel_rows(stream, 1)[0]

    def gumbel_rows(self, stream: int, rows: int) -> mx.array:
        """Gumbel noise [rows, width] of the pass's first rows."""
        if on_gpu():
            ids = mx.arange(self.width, dtype=mx.uint32)
            return mx.array(to_gumbel(bits(mx.array(self._keys(stream, rows), mx.uint32), ids)))
        # MLX's CPU back end takes several times as long over it as numpy.
        if stream != TARGET:
            return mx.array(_computed(self._keys(stream, rows), self.width))
        block, first = divmod(self.position, AHEAD)
        found = _ahead(self.seed, block, self.width)
        while len(found) < first + rows:
            block += 1
            found = np.concatenate([found, _ahead(self.seed, block, self.width)])
        return mx.array(found[first : first + rows])

    def uniform(self, stream: int) -> mx.array:
        """Uniforms [rows] in (0, 1), from the bits of id 0: so few that the host computes them."""
        raw = [_mix(_mix(k0) ^ k1) for k0, k1 in self._keys(stream, self.rows)]
        return mx.array(to_uniform(np.array(raw, np.uint32), np))
