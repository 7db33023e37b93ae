"""mamba2: mlx-lm's bits for each row, one reading of each state, and rows that do not stay."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from harness import run
from harness.mlxlm_kernels import ssm_rows
from harness.running import Outputs
from mlx_lm.models.ssm import ssm_update
from recurrent import CLOSE, Scan, close, scan

from macspec.metal import mamba2
from macspec.metal.mamba2 import KERNEL, STATES, Mamba2, Rows, mamba2_call, reference, row_by_row


def check(case: Scan, **how: bool) -> Outputs:
    """Values, and mlx-lm's bits with and without fused multiply-add."""
    outputs = run(KERNEL, *case.call, **how)
    assert all(close(*pair) for pair in zip(outputs, case.expected, strict=True))
    for fused, found in ((True, outputs), (False, outputs.unfused)):
        right = case.by_rows(fused=fused)
        assert all(mx.array_equal(*pair) for pair in zip(found, right, strict=True))
    return outputs


def one_type_a_state():
    """Every size of state with every type; by default one type for each."""
    for (a, state), (b, dtype) in itertools.product(enumerate(STATES), enumerate(CLOSE)):
        marks = pytest.mark.slow if (a + b) % 3 else ()
        yield pytest.param(state, dtype, marks=marks, id=f"{state}-{dtype}")


@pytest.mark.parametrize(("state", "dtype"), one_type_a_state())
def test_every_state_size_and_type_has_mlx_lms_bits(state, dtype):
    check(scan(3, 2, state=state, dtype=dtype))


@pytest.mark.parametrize(
    ("rows", "kept", "pending"), [(1, 0, 0), (2, 1, 1), (8, 0, 5), (8, 8, 8), (17, 9, 16)]
)
def test_rows(rows, kept, pending):
    check(scan(rows, kept, pending=pending, dtype=mx.bfloat16))


@pytest.mark.parametrize(("heads", "groups", "width"), [(8, 8, 4), (9, 3, 12), (12, 1, 36)])
def test_heads(heads, groups, width):
    check(scan(2, 1, heads=heads, groups=groups, width=width))


def test_weights_in_the_type_of_the_rows():
    check(scan(2, 1, dtype=mx.bfloat16, weights=mx.bfloat16))


@pytest.mark.parametrize("rows", range(1, 9))
def test_each_state_is_read_and_written_once(rows):
    case = scan(rows, rows, dtype=mx.float16, width=40)
    traffic = run(KERNEL, *case.call).report.traffic
    assert (traffic["state"].least, traffic["state"].most) == (1, 1)
    assert traffic["state"].read == traffic["state_out"].written == case.state.nbytes
    assert traffic["out"].written == case.rows.x.nbytes


def test_it_takes_no_threadgroup_memory_and_few_buffers():
    report = run(KERNEL, *scan(2, 1).call).report
    assert report.threadgroup_bytes == 0
    assert report.buffers < 31
    assert not report.warnings


def test_rows_that_do_not_stay_are_not_read():
    case = scan(2, 1, pending=4)
    for array in (case.before.x, case.before.b, case.before.dt):
        array[:, 1:] = mx.nan
    outputs = check(case)
    assert all(mx.isfinite(output).all() for output in outputs)


def test_passes_in_a_row_are_one_chain_of_the_rows_that_stayed():
    random = np.random.default_rng(5)
    first = scan(1, pending=0, dtype=mx.bfloat16)
    state, before, kept, whole = first.state, first.rows, 0, first.state
    for number in range(6):
        x = scan(int(random.integers(1, 6)), seed=number, dtype=mx.bfloat16).rows
        rows = replace(x, a_log=first.rows.a_log, d=first.rows.d)
        outputs = run(KERNEL, *Scan(state, before, kept, rows).call, inspected=False)
        right, _ = ssm_rows(rows, rows.x.shape[1], whole)
        assert mx.array_equal(outputs[0], right)
        assert mx.array_equal(outputs[1], whole)
        state, before, kept = outputs[1], rows, int(random.integers(0, rows.x.shape[1] + 1))
        _, whole = ssm_rows(rows, kept, whole)


def test_a_text_starts_with_zeros():
    case = scan(3, pending=0)
    outputs = run(KERNEL, *mamba2_call(None, case.rows, 0, case.rows))
    right, _ = ssm_rows(case.rows, 3, mx.zeros_like(case.state))
    assert mx.array_equal(outputs[0], right)
    assert not outputs[1].any()
    assert close(reference(None, case.rows, 0, case.rows)[0], right)


def test_slices_are_read_where_they_lie():
    """Rows as a model splits them off the output of its convolution."""
    rows, heads, groups, width, state = 4, 8, 2, 8, 32
    mixed = scan(rows, heads=1, groups=1, width=heads * width + 2 * groups * state + 8).rows.x[
        :, :, 0
    ]
    ends = [heads * width, heads * width + groups * state, heads * width + 2 * groups * state]
    x, b, c, _ = mx.split(mixed, ends, axis=-1)
    case = scan(rows, 3, pending=4, state=state)
    shaped = replace(
        case.rows,
        x=x.reshape(1, rows, heads, width),
        b=b.reshape(1, rows, groups, state),
        c=c.reshape(1, rows, groups, state),
    )
    outputs = check(replace(case, rows=shaped, before=shaped))
    traffic = outputs.report.traffic
    assert traffic["x"].size > x.nbytes, "the harness copied it"
    assert traffic["x"].least == 0


def test_columns_need_not_be_neighbours():
    case = scan(3, 2)

    def turned(array: mx.array) -> mx.array:
        return mx.contiguous(array.swapaxes(1, -1)).swapaxes(1, -1)

    rows = replace(
        case.rows,
        **{name: turned(getattr(case.rows, name)) for name in ("x", "b", "c", "dt")},
    )
    check(replace(case, rows=rows, before=rows))


def test_unaligned_inputs():
    check(scan(3, 2, dtype=mx.bfloat16), skewed=True)


def test_a_state_that_decays_to_nothing_and_one_that_stays():
    case = scan(3, 2)
    a_log = mx.where(mx.arange(8) % 2 == 0, -200.0, 8.0)
    rows = replace(case.rows, dt=case.rows.dt + 1, a_log=a_log)
    check(replace(case, rows=rows, before=rows))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_shapes(seed):
    random = np.random.default_rng(seed)
    kept = int(random.integers(0, 10))
    groups = int(random.integers(1, 5))
    case = scan(
        int(random.integers(1, 17)),
        kept,
        pending=kept + int(random.integers(0, 3)),
        groups=groups,
        heads=groups * int(random.integers(8, 12)),
        width=4 * int(random.integers(1, 20)),
        state=int(random.choice(STATES)),
        dtype=list(CLOSE)[seed % 3],
        seed=seed,
    )
    check(case)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((8, 2, 64, 16, mx.float16), "states of 16"),
        ((8, 2, 66, 64, mx.float16), "heads of 66"),
        ((8, 3, 64, 64, mx.float16), "8 heads in 3 groups"),
        ((4, 2, 64, 64, mx.float16), "4 heads"),
        ((8, 2, 64, 64, mx.int32), "int32"),
    ],
)
def test_what_the_kernel_does_not_take(shape, words):
    weights = mx.float32, mx.float16
    assert words in str(Mamba2(*shape, weights).unsupported)
    assert Mamba2(8, 2, 64, 64, mx.float16, weights).unsupported is None
    mixed = replace(scan(1).rows, c=mx.zeros((1, 1, 2, 64), mx.float16))
    assert "of one type" in str(mixed.shape.unsupported)


def arguments(rows, **changed):
    """Of mlx-lm's function."""
    random = np.random.default_rng(rows)

    def normal(*shape):
        return mx.array(random.standard_normal(shape, np.float32))

    return {
        "hidden_states": normal(1, rows, 8, 4),
        "A_log": normal(8),
        "B": normal(1, rows, 2, 32),
        "C": normal(1, rows, 2, 32),
        "D": normal(8),
        "dt": normal(1, rows, 8) * 2,
        "dt_bias": normal(8),
        "state": normal(1, 8, 4, 32),
        "time_step_limit": (0.5, 1.5),
        "mask": None,
        "lengths": None,
        **changed,
    }


def is_mlx_lms(given):
    """Whether all ways to split six rows in two give what mlx-lm's function does."""
    rows = Rows.of(given)
    y, state = ssm_update(**given)
    near = [mx.allclose(row_by_row(given, 6, given["state"])[0], y, atol=1e-5)]
    for kept in range(6):
        found, at = reference(given["state"], rows, kept, cut(rows, kept))
        _, after = reference(at, cut(rows, kept), 6 - kept, rows)
        near += mx.allclose(found, y[:, kept:], atol=1e-5), mx.allclose(after, state, atol=1e-5)
    return all(near)


def test_the_reference_is_what_mlx_lm_computes():
    """In its chunked form, which it takes here; steps between and at both limits."""
    given = arguments(6)
    steps = Rows.of(given).dt.reshape(-1).tolist()
    assert {0.5, 1.5} < set(steps)
    assert is_mlx_lms(given)


STEPS = {
    "without limits": lambda dt, bias, limits: nn.softplus(dt + bias),
    "limits before softplus": lambda dt, bias, limits: nn.softplus(mx.clip(dt + bias, *limits)),
    "bias after softplus": lambda dt, bias, limits: mx.clip(nn.softplus(dt) + bias, *limits),
}


@pytest.mark.parametrize("broken", STEPS.values(), ids=STEPS)
def test_other_steps_would_be_noticed(monkeypatch, broken):
    monkeypatch.setattr(mamba2, "ssm", SimpleNamespace(compute_dt=broken, ssm_update=ssm_update))
    assert not is_mlx_lms(arguments(6))


def cut(rows, first):
    names = ("x", "b", "c", "dt")
    return replace(rows, **{name: getattr(rows, name)[:, first:] for name in names})


@pytest.mark.parametrize(
    "changed",
    [
        {"mask": mx.ones((1, 2), mx.bool_)},
        {"lengths": mx.array([2])},
        {"hidden_states": mx.zeros((2, 2, 8, 4))},
    ],
    ids=str,
)
def test_rows_that_do_not_count_are_left_to_mlx_lm(changed):
    with pytest.raises(ValueError, match="not the rows of one text"):
        Rows.of(arguments(2, **changed))
