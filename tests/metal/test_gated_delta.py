"""gated_delta: mlx-lm's bits, one reading of each state, and rows that do not stay."""

from __future__ import annotations

import itertools
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from harness import run
from harness.mlxlm_kernels import delta_rows
from harness.running import Outputs
from mlx_lm.models.gated_delta import gated_delta_update
from recurrent import CLOSE, DeltaPass, close, delta_pass

from macspec.metal import recorded
from macspec.metal.gated_delta import KERNEL, GatedDelta, Rows, gated_delta_call, reference

WIDTHS = (32, 64, 96, 128, 192, 256)


def check(case: DeltaPass, **how: bool) -> Outputs:
    """Values, and mlx-lm's bits with and without fused multiply-add."""
    outputs = run(KERNEL, *case.call, **how)
    assert all(close(*pair) for pair in zip(outputs, case.expected, strict=True))
    for fused, found in ((True, outputs), (False, outputs.unfused)):
        right = case.by_mlx(fused=fused)
        assert all(mx.array_equal(*pair) for pair in zip(found, right, strict=True))
    return outputs


def one_type_a_width():
    """Every head size with every type and both gates; by default one type for each."""
    every = itertools.product(enumerate(WIDTHS), enumerate(CLOSE), (False, True))
    for (a, width), (b, dtype), by_column in every:
        marks = pytest.mark.slow if (a + b + by_column) % 6 else ()
        yield pytest.param(width, dtype, by_column, marks=marks)


@pytest.mark.parametrize(("width", "dtype", "by_column"), one_type_a_width())
def test_every_head_size_type_and_gate_has_mlx_lms_bits(width, dtype, by_column):
    check(delta_pass(3, 2, width=width, dtype=dtype, by_column=by_column))


@pytest.mark.parametrize(
    ("rows", "kept", "pending"), [(1, 0, 0), (2, 1, 1), (8, 0, 5), (8, 8, 8), (17, 9, 16)]
)
def test_rows(rows, kept, pending):
    check(delta_pass(rows, kept, pending=pending, dtype=mx.bfloat16))


@pytest.mark.parametrize(
    ("key_heads", "heads", "value_width"), [(1, 1, 8), (3, 9, 24), (4, 4, 128), (2, 8, 40)]
)
def test_heads(key_heads, heads, value_width):
    check(delta_pass(2, 1, key_heads=key_heads, heads=heads, value_width=value_width))


def test_the_fewest_lanes_that_fill_simdgroups_share_a_row():
    def lanes(width: int, value_width: int) -> int:
        return GatedDelta(1, 8, width, value_width, False, mx.float32).lanes

    assert [lanes(width, 128) for width in WIDTHS] == [1, 2, 4, 4, 8, 8]
    assert [lanes(128, value_width) for value_width in (4, 8, 1)] == [8, 4, 32]


@pytest.mark.parametrize("rows", range(1, 9))
def test_each_state_is_read_and_written_once(rows):
    case = delta_pass(rows, rows, width=128, value_width=8, dtype=mx.float16)
    traffic = run(KERNEL, *case.call).report.traffic
    assert (traffic["state"].least, traffic["state"].most) == (1, 1)
    assert traffic["state"].read == traffic["after"].written == case.state.nbytes
    assert traffic["y"].written == case.rows.v.nbytes


def test_it_takes_no_threadgroup_memory_and_few_buffers():
    report = run(KERNEL, *delta_pass(2, 1).call).report
    assert report.threadgroup_bytes == 0
    assert report.buffers < 31
    assert not report.warnings


def test_rows_that_do_not_stay_are_not_read():
    case = delta_pass(2, 1, pending=4)
    for array in case.before[1:]:
        array[:, 1:] = mx.nan
    assert all(mx.isfinite(output).all() for output in check(case))


def test_passes_in_a_row_are_one_chain_of_the_rows_that_stayed():
    random = np.random.default_rng(5)
    first = delta_pass(1, pending=0, dtype=mx.bfloat16)
    state, before, kept, whole = first.state, first.rows, 0, first.state
    for number in range(6):
        count = int(random.integers(1, 6))
        rows = delta_pass(count, seed=number, dtype=mx.bfloat16).rows
        outputs = run(KERNEL, *DeltaPass(state, before, kept, rows).call, inspected=False)
        assert mx.array_equal(outputs[0], delta_rows(rows, whole)[0])
        assert mx.array_equal(outputs[1], whole)
        state, before, kept = outputs[1], rows, int(random.integers(0, count + 1))
        if kept:
            _, whole = delta_rows(rows.first(kept), whole)


def test_a_text_starts_with_zeros():
    case = delta_pass(3, pending=0)
    outputs = run(KERNEL, *gated_delta_call(None, case.rows, 0, case.rows))
    assert mx.array_equal(outputs[0], delta_rows(case.rows, mx.zeros_like(case.state))[0])
    assert not outputs[1].any()
    assert close(reference(None, case.rows, 0, case.rows)[0], outputs[0])


def test_unaligned_inputs():
    check(delta_pass(3, 2, dtype=mx.bfloat16), skewed=True)


def test_a_state_that_is_forgotten_and_one_that_stays():
    case = delta_pass(3, 2)
    g = mx.broadcast_to(mx.arange(4) % 2, case.rows.g.shape).astype(mx.float32)
    rows = case.rows._replace(g=g)
    check(replace(case, rows=rows, before=rows))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_shapes(seed):
    random = np.random.default_rng(seed)
    kept, key_heads = int(random.integers(0, 10)), int(random.integers(1, 5))
    check(
        delta_pass(
            int(random.integers(1, 17)),
            kept,
            pending=kept + int(random.integers(0, 3)),
            key_heads=key_heads,
            heads=key_heads * int(random.integers(1, 5)),
            width=int(random.choice(WIDTHS)),
            value_width=8 * int(random.integers(1, 12)),
            by_column=bool(seed % 2),
            dtype=list(CLOSE)[seed % 3],
            seed=seed,
        )
    )


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 8, 48, 64, False, mx.float16), "keys of 48"),
        ((2, 8, 512, 64, False, mx.float16), "keys of 512"),
        ((3, 8, 64, 64, False, mx.float16), "8 heads for 3"),
        ((2, 4, 64, 64, False, mx.float16), "4 heads"),
        ((2, 8, 64, 64, False, mx.int32), "int32"),
    ],
)
def test_what_the_kernel_does_not_take(shape, words):
    assert words in str(GatedDelta(*shape).unsupported)
    assert GatedDelta(2, 8, 64, 64, False, mx.float16).unsupported is None


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("special", [{}, {"lower_bound": -5.0}, {"allow_neg_eigval": True}])
def test_the_reference_is_what_mlx_lm_computes(by_column, special):
    case = delta_pass(6, by_column=by_column)
    gates = case.rows.g.shape[2:]
    random = np.random.default_rng(1)
    given = {
        **{name: getattr(case.rows, name) for name in ("q", "k", "v")},
        "a": mx.array(random.standard_normal((1, 6, *gates)), mx.float32),
        "b": mx.array(random.standard_normal((1, 6, 4)), mx.float32),
        "A_log": mx.array(random.standard_normal((4, *gates[1:])), mx.float32),
        "dt_bias": mx.array(random.standard_normal(gates), mx.float32),
        "mask": None,
        "lower_bound": None,
        "allow_neg_eigval": False,
        **special,
    }
    rows = Rows.of(given)
    y, state = gated_delta_update(**given, state=case.state)
    for kept in range(6):
        rest = Rows(*(it[:, kept:] for it in rows))
        found, at = reference(case.state, rows, kept, rest)
        assert mx.array_equal(found, y[:, kept:])
        _, after = reference(at, rest, 6 - kept, rows)
        assert mx.array_equal(after, state)


@pytest.mark.parametrize("by_column", [False, True])
def test_recorded_results_are_the_same_in_every_order_of_adding(by_column):
    def advance(state, rows, row):
        q, k, v, g, beta = (np.array(it[0, row], np.float64) for it in rows)
        state = state * (g[:, None] if by_column else g[:, None, None])
        u = (v - state @ k[0]) * beta[:, None]
        state = state + u[..., None] * k[0]
        return state, state @ q[0]

    def by_float64(state, before, kept, rows):
        state = np.array(state[0], np.float64)
        for row in range(kept):
            state, _ = advance(state, before, row)
        after, outputs = mx.array(state, mx.float32), []
        for row in range(rows.q.shape[1]):
            state, y = advance(state, rows, row)
            outputs.append(y)
        return mx.array(np.array(outputs), mx.float32)[None], after[None]

    shape = GatedDelta(1, 2, 64, 16, by_column, mx.float32)
    stored = recorded.recorded()["gated_delta"][recorded.gated_delta_key(shape)]
    assert recorded.advanced(by_float64, shape) == stored
