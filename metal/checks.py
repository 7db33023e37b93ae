"""What a kernel must give to pass its self-check, and what it is timed against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle, product
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx_lm.models import ssm
from mlx_lm.models.base import quantized_scaled_dot_product_attention
from mlx_lm.models.gated_delta import normalize_qk

from macspec.noise import Noise
from macspec.verification import rule_named

from . import accept, gated_delta, mamba2, matmul, verify_attention, walks
from .gated_delta import GatedDelta
from .mamba2 import Mamba2, Rows
from .matmul import STRICT, Matmul, Matrix, multiply, prepared
from .recorded import (
    SEED,
    advanced,
    checksum,
    choice_key,
    drafts,
    gated_delta_key,
    mamba2_key,
    markov_sums,
    matmul_key,
    recorded,
    recorded_inputs,
    recorded_matrix,
    recorded_sampling,
    scanned,
    selections,
    verdicts,
)
from .variants import ACCEPT, CHOICES, MATMUL_ROWS, RECURRENCE_ROWS, Choice, Variant
from .verify_attention import Attention, Held
from .walks import Walk

TOLERANCE = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}
"""Largest error, in units of the largest value, between kernel and reference: matmuls and
attention are added in float32 on both sides, so it is some roundings of the type."""

COMPARED = 2048
"""Outputs at either end and in the middle of a matrix that are compared with the reference, which
needs its weights in float32."""

STREAMED = 2**27
"""Bytes of matrices that are read in turn when timed: more than any chip's cache holds."""

LONG = (16_416, 131_072)
"""Contexts of as many stretches as there are, the last of them empty or not."""

ACCEPT_TEXTS = (2, 4, 8, 9)
"""Rows of a pass between which an input reaches 8 elements, and with that another address space."""

TABLE = 4096
"""Rows of the codebooks that a walk is checked with; it reads few of them."""

PASSES = 4
"""Random passes on which choices must be equal to the reference's."""


@dataclass(frozen=True)
class Check:
    """One variant, ready to run on the device.

    Attributes:
        start: what a chain of calls begins with.
        ours, mlx: one call by macspec's kernel, and by what MLX does instead. Each returns its
            argument, once the result is there: a chain is as many calls, one after the other.
        failure: what is wrong with the kernel's results, in half a sentence; None if they are
            right.
    """

    start: mx.array
    ours: Callable[[mx.array], mx.array]
    mlx: Callable[[mx.array], mx.array]
    failure: Callable[[], str | None]


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
        return (_selector_check if selects else _markov_check)(variant.rows, variant.shape)
    return _choice_check(variant, variant.shape)


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
    x = _normal((variant.rows, shape.inputs), dtype)
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
            if why := _distance(y[:, some], matmul.reference(x, part)):
                return why
        return None

    return Check(
        x,
        lambda x: _after(next(ours)(x)[:, :1], x),
        lambda x: _after(matmul.by_mlx(x, next(turns))[:, :1], x),
        failure,
    )


def _attention_check(rows: int, shape: Attention) -> Check:
    queries = _normal((1, shape.query_heads, rows, shape.width), shape.dtype)
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
        return _after(out[..., :1], queries)

    def mlx(queries: mx.array) -> mx.array:
        if packing.bits:
            # mlx-lm scales queries in place.
            out = quantized_scaled_dot_product_attention(
                queries + 0, keys, values, scale, causal, packing.group_size, packing.bits
            )
            return _after(out[..., :1], queries)
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask="causal"
        )
        return _after(out[..., :1], queries)

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
        return _distance(out, verify_attention.reference(queries, keys, values, **how))

    return Check(queries, ours, mlx, failure)


def _held(size: tuple[int, ...], shape: Attention, seed: int) -> Held:
    """Keys or values as a cache of this shape's packing holds them."""
    plain = _normal(size, shape.dtype, seed)
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
    state = _normal((1, shape.heads, shape.width, shape.state), mx.float32)
    kept, pending = rows - 1, Rows.of(before)

    def ours(x: mx.array) -> mx.array:
        out, _ = mamba2.mamba2(state, pending, kept, Rows.of({**own, "hidden_states": x}))
        return _after(out[..., :1], x)

    def mlx(x: mx.array) -> mx.array:
        """The rows, and those that stay once more."""
        for some in (slice(rows), slice(kept)):
            cut = {name: own[name][:, some] for name in mamba2.ROWS}
            y, _ = ssm.ssm_update(**{**own, **cut, "hidden_states": x[:, some], "state": state})
            x = _after(y[:, :1, ..., :1], x)
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
        return _normal((1, rows, *sizes), shape.dtype, seed)

    a_log, d = shape.weights
    return {
        "hidden_states": some(shape.heads, shape.width),
        "A_log": _normal((shape.heads,), a_log),
        "B": some(shape.groups, shape.state),
        "C": -some(shape.groups, shape.state)[..., ::-1],
        "D": _normal((shape.heads,), d, 3),
        "dt": some(shape.heads),
        "dt_bias": _normal((shape.heads,), a_log, 4),
        "time_step_limit": (0.001, 100.0),
        "mask": None,
        "lengths": None,
    }


def _gated_delta_check(rows: int, shape: GatedDelta) -> Check:
    """A pass in which half of as many rows stay."""
    before, own = (_gated_delta_rows(rows, shape, seed) for seed in (1, 2))
    start = _normal((1, shape.heads, shape.value_width, shape.width), mx.float32)

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
        return _normal((1, rows, *sizes), mx.float32, seed)

    keys = [some(shape.key_heads, shape.width, seed=seed + it) for it in (0, 8)]
    q, k = normalize_qk(*keys, inv_scale=shape.width**-0.5, eps=1e-6)
    gates = (shape.heads, shape.width) if shape.by_column else (shape.heads,)
    v, beta = some(shape.heads, shape.value_width), mx.sigmoid(some(shape.heads))
    q, k, v, beta = (it.astype(shape.dtype) for it in (q, k, v, beta))
    return gated_delta.Rows(q, k, v, mx.sigmoid(some(*gates) + 2), beta)


def _choice_check(variant: Variant, shape: Choice) -> Check:
    accepts = variant.kernel == ACCEPT
    drafted, choose = _choosing(variant, shape)

    def call(x: mx.array, ours: bool) -> mx.array:
        for result in choose(x, 0, ours):
            x = _after(result, x)
        return x

    def failure() -> str | None:
        run: Any = accept.accept if accepts else accept.draft_sample
        found: Any = (verdicts if accepts else drafts)(
            run, shape.rule, shape.truncated, shape.dtype
        )
        stored = recorded()["accept" if accepts else "draft_sample"]
        if found != stored[choice_key(shape.rule, shape.truncated)]:
            return "its choices are not the recorded ones"
        for rows in {variant.rows, *(ACCEPT_TEXTS if accepts else ())}:
            tokens, choosing = _choosing(replace(variant, rows=rows), shape)
            for number in range(PASSES):
                ours, right = (
                    [it.item() for it in choosing(tokens, number, own)] for own in (1, 0)
                )
                if ours != right:
                    return "its choices are not the reference's"
        return None

    return Check(drafted, lambda x: call(x, True), lambda x: call(x, False), failure)


def _choosing(
    variant: Variant, shape: Choice
) -> tuple[mx.array, Callable[[mx.array, int, int], tuple[mx.array, ...]]]:
    """Drafted tokens, and how the kernel (or the reference) chooses after them in a pass."""
    accepts, block = variant.kernel == ACCEPT, shape.rule == "block"
    sampling = recorded_sampling(shape.rule, shape.truncated)
    rule = rule_named("block" if block else "keyed")
    logits = _normal((variant.rows, shape.width), shape.dtype) * 3
    likely = logits[: max(variant.rows - 1, 1)].astype(mx.float32)
    log_q = None
    if block and accepts:
        likely = log_q = sampling.scores(likely * 0.9)
    drafted = mx.argmax(likely, axis=-1).astype(mx.uint32)

    def verdict(x: mx.array, number: int, ours: int) -> tuple[mx.array, ...]:
        noise = noise_of(number)
        if ours:
            found = accept.accept(sampling, logits, x, log_q, noise)
        else:
            found = rule.accept(sampling.scores(logits), x, log_q, noise)
        return found.accepted, found.token

    def draw(x: mx.array, number: int, ours: int) -> tuple[mx.array, ...]:
        noise, rows = noise_of(number), _after(x, logits)
        if ours:
            return accept.draft_sample(sampling, rows, noise, 0, keeps_q=block)[:1]
        scores = sampling.scores(rows)
        if noise is not None:
            drawn = rule.draft_noise(noise)
            assert drawn is not None
            scores = scores + drawn[:1]
        return (mx.argmax(scores, axis=-1),)

    def noise_of(number: int) -> Noise | None:
        if shape.rule == "greedy":
            return None
        # A draft step's pass has a row for the bonus token, too.
        return Noise(SEED, number, 10 * number, variant.rows + (not accepts), shape.width)

    return drafted, verdict if accepts else draw


def _selector_check(rows: int, shape: Walk) -> Check:
    tables = tuple(_normal((TABLE, shape.rank), shape.dtype, seed) for seed in (1, 2))

    def parts_of(rows: int) -> tuple[mx.array, ...]:
        projected = _normal((rows, shape.rank), shape.dtype, 3) / shape.rank**0.5
        ids = mx.argsort(_normal((rows, TABLE), mx.float32), axis=-1)[:, : shape.choices]
        return projected, ids.astype(mx.uint32), _normal((rows, shape.choices), mx.float32, 4) * 2

    sampling, parts = recorded_sampling("block", True), parts_of(rows)
    noise = Noise(SEED, 1, 10, rows, TABLE)

    def call(run: Callable[..., Any]) -> Callable[[mx.array], mx.array]:
        return lambda x: _after(run(sampling, tables, parts, x, noise, keeps_q=True)[0][-1:], x)

    def failure() -> str | None:
        for rule, truncated in CHOICES:
            found = selections(walks.select, rule, truncated, shape.dtype)
            if found != recorded()["selector_walk"][choice_key(rule, truncated)]:
                return "its choices are not the recorded ones"
        # One row has fewer than 8 elements of some inputs.
        for count, (rule, truncated) in product((1, rows), CHOICES):
            how, own = recorded_sampling(rule, truncated), None if rule == "greedy" else noise
            given = how, tables, parts_of(count), mx.array([3], mx.uint32), own
            (tokens, log_q), right = (
                run(*given, keeps_q=rule == "block") for run in (walks.select, walks.reference)
            )
            if not mx.array_equal(tokens, right[0]):
                return "its choices are not the reference's"
            if rule == "block" and (why := _distance(mx.exp(log_q), mx.exp(right[1]))):
                return why
        return None

    return Check(mx.array([3], mx.uint32), call(walks.select), call(walks.reference), failure)


def _markov_check(rows: int, shape: Walk) -> Check:
    """Of one row: a block's are launched one after the other."""
    sizes = max(TABLE, shape.choices), shape.choices
    tables = tuple(_drawn((it, shape.rank), shape.dtype, seed) for seed, it in enumerate(sizes))
    logits = _drawn((1, shape.choices), mx.float32, 3) * 3
    places = None
    if shape.choices < shape.width:
        known = mx.arange(shape.width)
        places = mx.where(known < shape.choices, known, shape.choices)
    width = shape.width

    def call(run: Callable[..., Any]) -> Callable[[mx.array], mx.array]:
        return lambda x: _after(run(tables, logits, x, places, width)[0, :1], x)

    def failure() -> str | None:
        if markov_sums(walks.markov_row, shape.dtype) != recorded()["markov_row"]["sums"]:
            return "its bits are not the recorded ones"
        given = tables, logits, mx.array([3], mx.uint32), places, width
        found, right = (run(*given) for run in (walks.markov_row, walks.markov_reference))
        if not mx.array_equal(found > -mx.inf, right > -mx.inf):
            return "it guesses other ids"
        some = right > -mx.inf
        return _distance(mx.where(some, found, 0), mx.where(some, right, 0))

    return Check(
        mx.array([3], mx.uint32), call(walks.markov_row), call(walks.markov_reference), failure
    )


def _drawn(shape: tuple[int, ...], dtype: mx.Dtype, seed: int) -> mx.array:
    """Normal variates of the device, for what is large."""
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def _normal(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    """Normal variates that do not depend on the device."""
    random = np.random.default_rng([*shape, seed])
    return mx.array(random.standard_normal(shape, np.float32)).astype(dtype)


def _after(result: mx.array, x: mx.array) -> mx.array:
    """``x``, once ``result``, which can be broadcast to it, is there."""
    return x + (result * 0).astype(x.dtype)


def _distance(found: mx.array, right: mx.array) -> str | None:
    """How far two results are apart, if that is too far."""
    difference = mx.max(mx.abs(found.astype(mx.float32) - right.astype(mx.float32)))
    largest: Any = mx.max(mx.abs(right.astype(mx.float32))).item()
    error: Any = difference.item()
    # Not a number is not right either.
    if error <= TOLERANCE[right.dtype] * largest:
        return None
    return f"off by {error / (largest or 1):.1e} of the largest value"
