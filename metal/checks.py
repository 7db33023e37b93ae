"""What a kernel must give to pass its self-check, and what it is timed against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import cycle
from typing import Any, cast

import mlx.core as mx
from mlx_lm.models import ssm
from mlx_lm.models.base import quantized_scaled_dot_product_attention
from mlx_lm.models.gated_delta import normalize_qk

from . import gated_delta, mamba2, matmul, verify_attention, walks
from .choicechecks import choice_check, markov_check, selector_check
from .comparison import Check, behind, distance, normal
from .gated_delta import GatedDelta
from .mamba2 import Mamba2, Rows
from .matmul import STRICT, Matmul, Matrix, multiply, prepared
from .recorded import (
    advanced,
    checksum,
    gated_delta_key,
    mamba2_key,
    matmul_key,
    recorded,
    recorded_inputs,
    recorded_matrix,
    scanned,
)
from .variants import MATMUL_ROWS, RECURRENCE_ROWS, Variant
from .verify_attention import Attention, Held
from .walks import Walk

COMPARED = 2048
"""Outputs at either end and in the middle of a matrix that are compared with the reference, which
needs its weights in float32."""

STREAMED = 2**27
"""Bytes of matrices that are read in turn when timed: more than any chip's cache holds."""

LONG = (16_416, 131_072)
"""Contexts of as many stretches as there are, the last of them empty or not."""


def check_of(variant: Variant, copies: int = 1) -> Check:
    """The check of a variant.

    Args:
        copies: matrices of its shape that the model has, so that as many are read in turn.
    """
    if isinstance(variant.shape, Matmul):
        return _matmul_check(variant, variant.shape, copies)
    if isinstance(variant.shape, Mamba2):
        return _mamba2_check(variant.rows, variant.shape)
    if isinstance(variant.shape, GatedDelta):
        return _gated_delta_check(variant.rows, variant.shape)
    if isinstance(variant.shape, Attention):
        return _attention_check(variant.rows, variant.shape)
    if isinstance(variant.shape, Walk):
        selects = variant.kernel == walks.SELECTOR.name
        return (selector_check if selects else markov_check)(variant.rows, variant.shape)
    return choice_check(variant, variant.shape)


@lru_cache(maxsize=1)
def matrices(shape: Matmul, copies: int) -> list[Matrix]:
    """Random matrices of a shape, together larger than any cache if the model's are."""
    size = matmul.packed_bytes(shape)
    return [random_matrix(shape, seed) for seed in range(min(copies, max(STREAMED // size, 1)))]


def random_matrix(shape: Matmul, seed: int = 0) -> Matrix:
    """Any bits, in groups of about the same size."""
    keys = mx.random.split(mx.random.key(seed), 3)
    groups = shape.outputs, shape.inputs // shape.group_size
    size = shape.outputs, shape.inputs * shape.bits // 32
    w = mx.random.randint(-(2**31), 2**31 - 1, size, key=keys[0]).view(mx.uint32)
    how = shape.group_size, shape.bits, shape.mode
    if shape.mode != matmul.AFFINE:
        w = matmul.without_nan(w)
        # Around 1 in either format of scales.
        one = 56 if shape.mode == "nvfp4" else 127
        scales = mx.random.randint(one - 8, one + 2, groups, mx.uint8, key=keys[1])
        mx.eval(w, scales)
        return Matrix(w, scales, None, *how)
    scales, biases = (mx.random.normal(groups, key=key).astype(shape.dtype) for key in keys[1:])
    scales = scales / 2**shape.bits
    mx.eval(w, scales, biases)
    return Matrix(w, scales, biases, *how)


def _matmul_check(variant: Variant, shape: Matmul, copies: int) -> Check:
    kernel, dtype = variant.kernel, shape.dtype
    x = normal((variant.rows, shape.inputs), dtype)
    several = matrices(shape, copies)
    matrix, turns = several[0], cycle(several)
    ours = cycle([prepared(kernel, x, it) for it in several])

    def failure() -> str | None:
        how = matrix.bits, matrix.group_size, dtype, matrix.mode
        y = multiply(kernel, recorded_inputs(variant.rows, dtype), recorded_matrix(*how))
        sums = recorded()["products"][matmul_key(*how)].split()
        if checksum(y) != sums[MATMUL_ROWS.index(variant.rows)]:
            return "its bits are not the recorded ones"
        y = multiply(kernel, x, matrix)
        if kernel == STRICT:
            same = mx.array_equal(y, matmul.row_by_row(x, matrix))
            return None if same else "its bits are not those of MLX's one-row kernel"
        last = max(matrix.outputs - COMPARED, 0)
        for begin in {0, last // 2, last}:
            some = slice(begin, begin + COMPARED)
            biases = None if matrix.biases is None else matrix.biases[some]
            part = replace(matrix, w=matrix.w[some], scales=matrix.scales[some], biases=biases)
            if why := distance(y[:, some], matmul.reference(x, part)):
                return why
        return None

    return Check(
        x,
        lambda x: behind(next(ours)(x)[:, :1], x),
        lambda x: behind(matmul.by_mlx(x, next(turns))[:, :1], x),
        failure,
    )


def _attention_check(rows: int, shape: Attention) -> Check:
    queries = normal((1, shape.query_heads, rows, shape.width), shape.dtype)
    widths = shape.width, shape.value_width
    packing = shape.packing
    keys: Any
    values: Any
    keys, values = (
        _held((1, shape.heads, shape.length, it), shape, seed) for seed, it in enumerate(widths, 1)
    )
    scale = float(shape.width**-0.5)
    chain, causal = verify_attention.causal(rows), cast("Any", "causal")
    # In the tree every row sees the first and itself.
    tree = tuple(1 | 1 << row for row in range(rows))

    def ours(queries: mx.array) -> mx.array:
        out = verify_attention.verify_attention(
            queries, keys, values, sees=chain, scale=scale, packing=packing
        )
        return behind(out[..., :1], queries)

    def mlx(queries: mx.array) -> mx.array:
        if packing.bits:
            # mlx-lm scales queries in place.
            out = quantized_scaled_dot_product_attention(
                queries + 0, keys, values, scale, causal, packing.group_size, packing.bits
            )
            return behind(out[..., :1], queries)
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask="causal"
        )
        return behind(out[..., :1], queries)

    def failure() -> str | None:
        group = shape.query_heads // shape.heads
        for sees in (chain, tree):
            for length in (shape.length, 100):
                begins = [_beginning(it, length) for it in (keys, values)]
                if why := wrong(queries, begins[0], begins[1], sees):
                    return why
        # One head is enough to reach every number of stretches.
        for length in LONG:
            one_keys, one_values = (
                _held((1, 1, length, it), shape, seed) for seed, it in enumerate(widths, 1)
            )
            if why := wrong(queries[:, :group], one_keys, one_values, chain):
                return f"{why} at {length} keys"
        return None

    def wrong(queries: mx.array, keys: Held, values: Held, sees: tuple[int, ...]) -> str | None:
        how: Any = {"sees": sees, "scale": scale, "packing": packing}
        out = verify_attention.verify_attention(queries, keys, values, **how)
        return distance(out, verify_attention.reference(queries, keys, values, **how))

    return Check(queries, ours, mlx, failure)


def _held(size: tuple[int, ...], shape: Attention, seed: int) -> Held:
    """Keys or values as a cache of this shape's packing holds them."""
    plain = normal(size, shape.dtype, seed)
    bits, group = shape.packing
    if not bits:
        return plain
    words, scales, biases = mx.quantize(plain, group, bits)
    return words, scales, biases


def _beginning(held: Held, length: int) -> Held:
    if isinstance(held, mx.array):
        return held[:, :, :length]
    words, scales, biases = (it[:, :, :length] for it in held)
    return words, scales, biases


def _mamba2_check(rows: int, shape: Mamba2) -> Check:
    """A pass in which all but one of as many rows stay."""
    before, own = (_ssm_arguments(rows, shape, seed) for seed in (1, 2))
    state = normal((1, shape.heads, shape.width, shape.state), mx.float32)
    kept, pending = rows - 1, Rows.of(before)

    def ours(x: mx.array) -> mx.array:
        out, _ = mamba2.mamba2(state, pending, kept, Rows.of({**own, "hidden_states": x}))
        return behind(out[..., :1], x)

    def mlx(x: mx.array) -> mx.array:
        """The rows, and those that stay once more."""
        for some in (slice(rows), slice(kept)):
            cut = {name: own[name][:, some] for name in mamba2.ROWS}
            y, _ = ssm.ssm_update(**{**own, **cut, "hidden_states": x[:, some], "state": state})
            x = behind(y[:, :1, ..., :1], x)
        return x

    def failure() -> str | None:
        sums = recorded()["mamba2"][mamba2_key(shape)].split()
        if scanned(mamba2.mamba2, shape, rows) != sums[RECURRENCE_ROWS.index(rows)]:
            return "its bits are not the recorded ones"
        found = mamba2.mamba2(state, pending, kept, Rows.of(own))
        _, after = mamba2.row_by_row(before, kept, state)
        out, _ = mamba2.row_by_row(own, rows, after)
        if not all(map(mx.array_equal, found, (out, after))):
            return "its bits are not those of mlx-lm's one-row kernel"
        return None

    return Check(own["hidden_states"], ours, mlx, failure)


def _ssm_arguments(rows: int, shape: Mamba2, seed: int) -> dict[str, Any]:
    """Of mlx-lm's function, but for the state."""

    def some(*sizes: int) -> mx.array:
        return normal((1, rows, *sizes), shape.dtype, seed)

    a_log, d = shape.weights
    return {
        "hidden_states": some(shape.heads, shape.width),
        "A_log": normal((shape.heads,), a_log),
        "B": some(shape.groups, shape.state),
        "C": -some(shape.groups, shape.state)[..., ::-1],
        "D": normal((shape.heads,), d, 3),
        "dt": some(shape.heads),
        "dt_bias": normal((shape.heads,), a_log, 4),
        "time_step_limit": (0.001, 100.0),
        "mask": None,
        "lengths": None,
    }


def _gated_delta_check(rows: int, shape: GatedDelta) -> Check:
    """A pass in which half of as many rows stay."""
    before, own = (_gated_delta_rows(rows, shape, seed) for seed in (1, 2))
    start = normal((1, shape.heads, shape.value_width, shape.width), mx.float32)

    def call(run: Callable[..., Any]) -> Callable[[mx.array], mx.array]:
        def once(state: mx.array) -> mx.array:
            out, after = run(state, before, rows // 2, own)
            chained: mx.array = mx.depends(after, out)
            return chained

        return once

    def failure() -> str | None:
        sums = recorded()["gated_delta"][gated_delta_key(shape)]
        if advanced(gated_delta.gated_delta, shape) != sums:
            return "its bits are not the recorded ones"
        for kept in {0, rows // 2, rows}:
            found = gated_delta.gated_delta(start, before, kept, own)
            right = gated_delta.by_mlx(start, before, kept, own)
            if not all(map(mx.array_equal, found, right)):
                return "its bits are not those of mlx-lm's kernel"
        return None

    return Check(start, call(gated_delta.gated_delta), call(gated_delta.by_mlx), failure)


def _gated_delta_rows(rows: int, shape: GatedDelta, seed: int) -> gated_delta.Rows:
    def some(*sizes: int, seed: int = seed) -> mx.array:
        return normal((1, rows, *sizes), mx.float32, seed)

    keys = [some(shape.key_heads, shape.width, seed=seed + it) for it in (0, 8)]
    q, k = normalize_qk(*keys, inv_scale=shape.width**-0.5, eps=1e-6)
    gates = (shape.heads, shape.width) if shape.by_column else (shape.heads,)
    v, beta = some(shape.heads, shape.value_width), mx.sigmoid(some(shape.heads))
    q, k, v, beta = (it.astype(shape.dtype) for it in (q, k, v, beta))
    return gated_delta.Rows(q, k, v, mx.sigmoid(some(*gates) + 2), beta)
