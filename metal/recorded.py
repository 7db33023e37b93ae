"""What kernels must give on every machine: the portable references' results in ``expected.json``.

For matmuls and recurrences the numbers are small multiples of a power of two, so that every order
of adding gives the same sum; for choices the best two scores are further apart than any rounding
error.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from macspec.noise import DRAFT, TARGET, Noise, bits
from macspec.sampling import Sampling

from . import gated_delta
from .gated_delta import GatedDelta
from .kernel import dtype_name
from .mamba2 import Mamba2, Rows
from .matmul import AFFINE, Matrix
from .variants import MATMUL_ROWS, RECURRENCE_ROWS

OUTPUTS, INPUTS = 2048, 512
"""Of the recorded matrices."""
WIDTH, DEPTH = 1000, 4
"""Of the recorded passes: ids, and drafted tokens."""
SEED = 20


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """What ``expected.json`` holds."""
    stored: dict[str, dict[str, Any]] = json.loads(
        (Path(__file__).parent / "expected.json").read_text(encoding="utf-8")
    )
    return stored


def matmul_key(bits: int, group_size: int, dtype: mx.Dtype, mode: str = AFFINE) -> str:
    """Of recorded matmuls, which are checksums by number of rows."""
    weights = f"{bits} {group_size}" if mode == AFFINE else mode
    return f"{weights} {dtype_name(dtype)}"


def mamba2_key(shape: Mamba2) -> str:
    """Of recorded passes of Mamba-2, which are checksums by number of rows."""
    return f"{shape.state} {dtype_name(shape.dtype)}"


def gated_delta_key(shape: GatedDelta) -> str:
    """Of recorded passes of gated delta nets, which are checksums by number of kept rows."""
    return f"{'by column ' * shape.by_column}{dtype_name(shape.dtype)}"


def choice_key(rule: str, truncated: bool) -> str:
    """Of recorded choices, which are the same in every type."""
    return f"{rule}{' truncated' * truncated}"


def checksum(array: mx.array) -> str:
    """Of an array's bits."""
    return f"{zlib.crc32(np.array(array.view(mx.uint8)).tobytes()):08x}"


def recorded_matrix(bits: int, group_size: int, dtype: mx.Dtype, mode: str = AFFINE) -> Matrix:
    """A matrix [2048, 512] of multiples of 2^(1 - bits) from -2 to below 2, if it is affine; of
    small floats that are multiples of 1/4 up to 6, or of 2^-10 below 2."""
    packed = _hashed((OUTPUTS, INPUTS * bits // 32), bits)
    wide = _hashed((OUTPUTS, INPUTS // group_size), 5) % mx.array(2, mx.uint32) == 0
    if mode != AFFINE:
        one, half = (56, 48) if mode == "nvfp4" else (127, 126)
        scales = mx.where(wide, one, half).astype(mx.uint8)
        # Without the highest bit of their exponents, 8-bit floats are below 2.
        some = packed if bits == 4 else packed & mx.array(0xBFBFBFBF, mx.uint32)
        return Matrix(some, scales, None, group_size, bits, mode)
    scales = mx.where(wide, 2.0 ** (2 - bits), 2.0 ** (1 - bits)).astype(dtype)
    biases = mx.where(wide, -2.0, -1.0).astype(dtype)
    return Matrix(packed, scales, biases, group_size, bits)


def recorded_inputs(rows: int, dtype: mx.Dtype) -> mx.array:
    """[rows, 512] of -2 to 2."""
    most = _hashed((MATMUL_ROWS[-1], INPUTS), 7)[:rows] % mx.array(5, mx.uint32)
    return (most.astype(mx.float32) - 2).astype(dtype)


def recorded_rows(shape: Mamba2, rows: int, seed: int = 0) -> Rows:
    """Multiples of 1/2 in two groups of four heads, which forget all or nothing with each row."""

    def some(*shape: int, seed: int) -> mx.array:
        return (_hashed(shape, seed) % mx.array(5, mx.uint32)).astype(mx.float32) - 2

    most, (a_log, d) = RECURRENCE_ROWS[-1], shape.weights
    x = some(1, most, 8, 16, seed=seed + 13)[:, :rows].astype(shape.dtype)
    b, c = (
        some(1, most, 2, shape.state, seed=seed + it)[:, :rows].astype(shape.dtype)
        for it in (15, 17)
    )
    dt = (some(1, most, 8, seed=seed + 19)[:, :rows] + 3) / 2
    forgets = mx.arange(8) % 2 == 0
    return Rows(x, b, c, dt, mx.where(forgets, 8, -200).astype(a_log), mx.arange(8).astype(d))


def recorded_state(shape: Mamba2) -> mx.array:
    """[1, 8, 16, state]."""
    return (_hashed((1, 8, 16, shape.state), 23) % mx.array(9, mx.uint32)).astype(mx.float32) - 4


def scanned(run: Callable[..., Any], shape: Mamba2, rows: int) -> str:
    """The checksum of what ``run`` (as ``mamba2``) gives for rows on all but one of as many."""
    before, own = recorded_rows(shape, rows), recorded_rows(shape, rows, 1)
    out, after = run(recorded_state(shape), before, rows - 1, own)
    # Adding 0 takes the sign from a negative zero.
    return checksum(out + 0) + checksum(after + 0)


def recorded_delta(shape: GatedDelta, seed: int = 0) -> gated_delta.Rows:
    """Three rows of two heads that share one of keys: few of these, halves, are not zero."""

    def some(number: int, values: tuple[float, ...], *sizes: int) -> mx.array:
        chosen = _hashed((1, 3, *sizes), seed + number) % mx.array(len(values), mx.uint32)
        return mx.array(values)[chosen]

    gates = (2, 64) if shape.by_column else (2,)
    return gated_delta.Rows(
        some(31, (1, -1, *(0,) * 14), 1, 64).astype(shape.dtype),
        some(32, (0.5, -0.5, *(0,) * 14), 1, 64).astype(shape.dtype),
        some(33, (-2, -1, 0, 1, 2), 2, 16).astype(shape.dtype),
        some(34, (1, 1, 1, 0.5), *gates),
        some(35, (1, 0.5), 2).astype(shape.dtype),
    )


def advanced(run: Callable[..., Any], shape: GatedDelta) -> str:
    """Checksums of what ``run`` (as ``gated_delta``) gives for none to all pending rows kept."""
    before, own = recorded_delta(shape), recorded_delta(shape, 10)
    state = (_hashed((1, 2, 16, 64), 37) % mx.array(5, mx.uint32)).astype(mx.float32) - 2
    results = (run(state, before, kept, own) for kept in range(4))
    return " ".join(checksum(out + 0) + checksum(after + 0) for out, after in results)


def recorded_logits(dtype: mx.Dtype) -> mx.array:
    """[5, 1000] of multiples of 1/16 from 0 to below 8, with ties, and the same in every type."""
    steps = _hashed((DEPTH + 1, WIDTH), 11) % mx.array(128, mx.uint32)
    return (steps.astype(mx.float32) / 16).astype(dtype)


def recorded_sampling(rule: str, truncated: bool) -> Sampling:
    """How the recorded choices are made."""
    how = Sampling(temperature=0 if rule == "greedy" else 0.8)
    return replace(how, top_k=40, top_p=0.9) if truncated else how


def recorded_noise(rule: str, draw: int = 3) -> Noise | None:
    """Of a pass whose choices are recorded; every ``draw`` has other numbers under block."""
    return None if rule == "greedy" else Noise(SEED, draw, 100 + draw, DEPTH + 1, WIDTH)


def verdicts(
    run: Callable[..., Any], rule: str, truncated: bool, dtype: mx.Dtype
) -> list[list[int]]:
    """How many drafted tokens ``run`` (as ``accept``) accepts, and what follows, in five passes.

    Under match none to all of the drafted tokens are right; under block they are draws.
    """
    how, rows = recorded_sampling(rule, truncated), recorded_logits(dtype)
    found = []
    for draw in range(DEPTH + 1):
        noise = recorded_noise(rule, draw)
        log_q = None
        if rule == "block":
            assert noise is not None
            log_q = how.scores(recorded_logits(mx.float32)[:DEPTH] * 0.9, None)
            drafted = mx.argmax(log_q + noise.gumbel(DRAFT)[:DEPTH], axis=-1)
        else:
            scores = how.scores(recorded_logits(mx.float32), None)
            right = scores if noise is None else scores + noise.gumbel(TARGET)
            drafted = mx.argmax(right, axis=-1)[:DEPTH]
            drafted = mx.where(mx.arange(DEPTH) < draw, drafted, (drafted + 1) % WIDTH)
        verdict = run(how, rows, drafted.astype(mx.uint32), log_q, noise)
        found.append([int(verdict.accepted.item()), int(verdict.token.item())])
    return found


def drafts(run: Callable[..., Any], rule: str, truncated: bool, dtype: mx.Dtype) -> list[int]:
    """The tokens that ``run`` (as ``draft_sample``) draws at each step."""
    how, noise = recorded_sampling(rule, truncated), recorded_noise(rule)
    rows = recorded_logits(dtype)
    return [
        int(run(how, rows[step : step + 1], noise, step, keeps_q=rule == "block")[0].item())
        for step in range(DEPTH)
    ]


def recorded_tables(dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Of a walk, [1000, 8] each: quarters from -1 to 1, few of which are not zero."""
    drawn = (_hashed((WIDTH, 8), seed) % mx.array(20, mx.uint32) for seed in (41, 43))
    first, second = (mx.where(it < 9, it.astype(mx.float32) - 4, 0) / 4 for it in drawn)
    return first.astype(dtype), second.astype(dtype)


def selections(run: Callable[..., Any], rule: str, truncated: bool, dtype: mx.Dtype) -> list[int]:
    """The tokens that ``run`` (as ``walks.select``) chooses along a block."""
    logits, count = recorded_logits(mx.float32)[:, : 16 * DEPTH], 16
    parts = (
        recorded_tables(dtype)[1][:DEPTH],
        mx.arange(DEPTH * count, dtype=mx.uint32).reshape(DEPTH, count) * 7 % WIDTH,
        mx.take_along_axis(logits[:DEPTH], mx.arange(DEPTH * count).reshape(DEPTH, count), 1),
    )
    tokens, _ = run(
        recorded_sampling(rule, truncated),
        recorded_tables(dtype),
        parts,
        mx.array([5], mx.uint32),
        recorded_noise(rule),
        keeps_q=rule == "block",
    )
    found: list[int] = tokens.tolist()
    return found


def markov_sums(run: Callable[..., Any], dtype: mx.Dtype) -> str:
    """Checksums of what ``run`` (as ``walks.markov_row``) gives, for a reduced vocabulary too."""
    tables, logits = recorded_tables(dtype), recorded_logits(mx.float32)[:1]
    known = mx.arange(WIDTH)
    places = mx.where(known % 3 == 0, known // 3, WIDTH // 3 + 1)
    cut = (tables[0], tables[1][: WIDTH // 3 + 1]), logits[:, : WIDTH // 3 + 1], places
    token = mx.array([9], mx.uint32)
    rows = [
        run(tables, logits, token, None, WIDTH),
        run(cut[0], cut[1], token, cut[2], WIDTH - 3),
    ]
    return " ".join(checksum(row + 0) for row in rows)


def _hashed(shape: tuple[int, ...], seed: int) -> mx.array:
    """uint32 from the noise's hash, the same everywhere."""
    keys = mx.array([[seed, seed + 1]], mx.uint32)
    drawn: mx.array = bits(keys, mx.arange(int(np.prod(shape)), dtype=mx.uint32))
    return drawn.reshape(shape)
