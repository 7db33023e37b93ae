"""Up to 32 rows times a quantized matrix in simdgroup matrices: right values, weights read once."""

from __future__ import annotations

import itertools
import random

import mlx.core as mx
import pytest
from harness import Outputs, installed, run
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import Matmul, make, right, same_bits

from macspec.metal import matmul
from macspec.metal.matmul import BITS, GROUP_SIZES, TYPES, Matrix

F32, F16, BF16 = mx.float32, mx.float16, mx.bfloat16
PLAIN = Matmul(8, 32, 1024, 64, 4, BF16)
CASES = (
    PLAIN,
    Matmul(9, 37, 480, 32, 4, F32),
    Matmul(16, 21, 2048, 128, 8, F16),
    Matmul(1, 40, 96, 32, 3, F32),
    Matmul(5, 7, 192, 64, 5, BF16),
    Matmul(24, 33, 256, 32, 6, BF16),
    Matmul(32, 64, 4096, 64, 2, F16),
)
CHOICE = random.Random(0)
MORE = tuple(
    Matmul(
        CHOICE.choice((6, 9, 12, 16, 17, 25, 32, 40)),
        CHOICE.choice((11, 29, 32, 64, 96)),
        inputs,
        CHOICE.choice(GROUP_SIZES),
        bits,
        dtype,
    )
    for inputs, bits, dtype in itertools.product((384, 1024, 2176), BITS, TYPES)
)


def run_qmm(x: mx.array, matrix: Matrix, **how: bool) -> Outputs:
    return run(matmul.QMM, matmul.qmm_operands(x, matrix), matmul.qmm_launch(x, matrix), **how)


def total(y: mx.array, x: mx.array) -> mx.array:
    """The product, where parts of it were left to add."""
    return y if y.ndim == 2 else y.sum(axis=0).astype(x.dtype)


def check(case: Matmul) -> None:
    x, matrix = make(case)
    outputs = run_qmm(x, matrix)
    assert right(total(outputs[0], x), x, matrix)
    assert right(total(outputs.unfused[0], x), x, matrix)
    times = -(-case.rows // 32)
    weights = outputs.report.traffic["w"]
    assert (weights.least, weights.most) == (times, times)
    assert outputs.report.threadgroup_bytes <= 16 * 1024
    assert not outputs.report.warnings


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_right_and_weights_are_read_once(case: Matmul) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE, ids=str)
def test_values_are_right_for_every_kind_of_matrix(case: Matmul) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.integers(9, 16),
    outputs=st.integers(1, 100),
    groups=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_any_size(rows: int, outputs: int, groups: int, seed: int) -> None:
    x, matrix = make(Matmul(rows, outputs, 32 * groups, 32, 4, F32), seed)
    assert right(total(run_qmm(x, matrix, inspected=False)[0], x), x, matrix)


@pytest.mark.slow
def test_a_whole_vocabulary() -> None:
    check(Matmul(9, 151_936, 32, 32, 4, BF16))


def test_a_narrow_matrix_is_split_along_its_inputs() -> None:
    x, matrix = make(Matmul(16, 32, 8192, 64, 4, BF16))
    launch = matmul.qmm_launch(x, matrix)
    assert launch.grid[2] == 4
    assert launch.shapes == ((4, 16, 32),)
    assert launch.dtypes == (F32,)
    with installed(inspected=False) as launched:
        y = matmul.verify_qmm(x, matrix)
    assert launched == ["verify_qmm"]
    assert right(y, x, matrix)


@pytest.mark.parametrize(("outputs", "bits"), [(7, 4), (3, 2)])
def test_inputs_of_fewer_than_eight_elements(outputs: int, bits: int) -> None:
    """They come in constant memory: 7 scales, 6 words."""
    x, matrix = make(Matmul(8, outputs, 32, 32, bits, F32))
    assert right(run_qmm(x, matrix)[0], x, matrix)


def test_slices_of_arrays() -> None:
    x, matrix = make(PLAIN)
    assert right(run_qmm(x, matrix, skewed=True)[0], x, matrix)


@pytest.mark.parametrize("at", [slice(300, 301), slice(5, 9), slice(None)])
@pytest.mark.parametrize("value", [mx.inf, -mx.inf, mx.nan])
def test_infinite_inputs_and_nan_spoil_their_own_row_only(value: float, at: slice) -> None:
    finite, matrix = make(PLAIN)
    x = mx.array(finite)
    x[1, at] = value
    y, expected = run_qmm(x, matrix, inspected=False)[0], matmul.reference(x, matrix)
    for kind in (mx.isnan, mx.isposinf, mx.isneginf):
        assert mx.array_equal(kind(y), kind(expected))
    undisturbed = run_qmm(finite, matrix, inspected=False)[0]
    kept = mx.array([0, *range(2, 8)])
    assert same_bits(y[kept], undisturbed[kept])


def test_what_is_not_supported_is_said() -> None:
    _, matrix = make(PLAIN)
    assert matmul.supports(matrix, BF16) is None
    assert matmul.supports(matrix, F16) == "scales and biases are bfloat16, the input is float16"
