"""A few rows times a quantized matrix: MLX's bits where promised, the right values everywhere."""

from __future__ import annotations

import itertools
import random

import mlx.core as mx
import pytest
from harness import Outputs, installed, run
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import Matmul, make, mlx_rows, right, same_bits

from macspec.metal import matmul
from macspec.metal.matmul import BITS, GROUP_SIZES, TYPES, Matrix

F32, F16, BF16 = mx.float32, mx.float16, mx.bfloat16
PAIR = Matmul(2, 16, 512, 64, 4, BF16)
CASES = (
    PAIR,
    Matmul(5, 37, 1024, 32, 4, F32),
    Matmul(8, 13, 96, 32, 4, F16),
    Matmul(1, 11, 256, 128, 8, BF16),
    Matmul(9, 21, 320, 64, 8, F32),
    Matmul(3, 40, 512, 128, 3, F16),
    Matmul(4, 9, 192, 64, 5, BF16),
    Matmul(3, 19, 256, 32, 6, BF16),
    Matmul(16, 6, 288, 32, 2, F32),
)
FEW = tuple(case for case in CASES if (case.rows, case.inputs) not in ((8, 96), (1, 256)))
"""For the default run: every number of bits, whole and partial tiles, both of MLX's kernels."""
CHOICE = random.Random(0)
MORE = tuple(
    Matmul(
        CHOICE.choice((1, 2, 5, 8, 9, 16)),
        CHOICE.choice((8, 11, 24, 29, 64)),
        inputs,
        CHOICE.choice(GROUP_SIZES),
        bits,
        dtype,
    )
    for inputs, bits, dtype in itertools.product((512, 1024, 768, 384), BITS, TYPES)
)


def run_qmv(x: mx.array, matrix: Matrix, *, strict: bool, **how: bool) -> Outputs:
    return run(
        matmul.QMV,
        matmul.qmv_operands(x, matrix, strict=strict),
        matmul.qmv_launch(x, matrix, strict=strict),
        **how,
    )


def check_strict(case: Matmul) -> None:
    x, matrix = make(case)
    outputs = run_qmv(x, matrix, strict=True)
    assert same_bits(outputs[0], mlx_rows(x, matrix, fused=True))
    assert same_bits(outputs.unfused[0], mlx_rows(x, matrix, fused=False))
    assert right(outputs[0], x, matrix)
    check_report(outputs, case.rows)


def check_free(case: Matmul) -> None:
    x, matrix = make(case)
    outputs = run_qmv(x, matrix, strict=False)
    assert right(outputs[0], x, matrix)
    assert right(outputs.unfused[0], x, matrix)
    check_report(outputs, case.rows)


def check_report(outputs: Outputs, rows: int) -> None:
    times = -(-rows // 8)
    weights = outputs.report.traffic["w"]
    assert (weights.least, weights.most) == (times, times)
    assert outputs.report.threadgroup_bytes == 0
    assert not outputs.report.warnings


@pytest.mark.parametrize("case", FEW, ids=str)
def test_strict_has_the_bits_of_mlx_and_reads_weights_once(case: Matmul) -> None:
    check_strict(case)


@pytest.mark.parametrize("case", FEW[::2], ids=str)
def test_free_has_the_right_values_and_reads_weights_once(case: Matmul) -> None:
    check_free(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *MORE], ids=str)
def test_strict_has_the_bits_of_mlx_for_every_kind_of_matrix(case: Matmul) -> None:
    check_strict(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES[::2], *MORE[::5]], ids=str)
def test_free_has_the_right_values_for_every_kind_of_matrix(case: Matmul) -> None:
    check_free(case)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.sampled_from((2, 16)),
    outputs=st.integers(1, 70),
    groups=st.integers(1, 40).filter(lambda groups: groups not in (2, 4)),
    seed=st.integers(0, 1000),
)
def test_any_size(rows: int, outputs: int, groups: int, seed: int) -> None:
    x, matrix = make(Matmul(rows, outputs, 32 * groups, 32, 4, F32), seed)
    strict = run_qmv(x, matrix, strict=True, inspected=False)
    assert same_bits(strict[0], mlx_rows(x, matrix, fused=True))
    free = run_qmv(x, matrix, strict=False, inspected=False)
    assert right(free[0], x, matrix)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [151_936, 4099])
def test_a_whole_vocabulary(outputs: int) -> None:
    x, matrix = make(Matmul(5, outputs, 96, 32, 4, BF16))
    strict = run_qmv(x, matrix, strict=True)
    assert same_bits(strict[0], mlx_rows(x, matrix, fused=True))
    check_report(strict, 5)
    free = run_qmv(x, matrix, strict=False)
    assert right(free[0], x, matrix)
    check_report(free, 5)


def test_half_a_simdgroup_a_row_where_the_matrix_is_tall() -> None:
    x, matrix = make(Matmul(3, matmul.WIDE + 5, 64, 64, 4, BF16))
    outputs = run_qmv(x, matrix, strict=False)
    assert dict(matmul.qmv_launch(x, matrix).template)["LANES"] == 16
    assert right(outputs[0], x, matrix)
    check_report(outputs, 3)


@pytest.mark.parametrize(
    ("outputs", "bits", "strict"), [(7, 4, True), (8, 4, True), (7, 4, False), (3, 2, False)]
)
def test_inputs_of_fewer_than_eight_elements(outputs: int, bits: int, strict: bool) -> None:
    """They come in constant memory: 7 scales and not 8, 6 words."""
    x, matrix = make(Matmul(1, outputs, 32, 32, bits, F32))
    y = run_qmv(x, matrix, strict=strict)[0]
    assert right(y, x, matrix)
    if strict:
        assert same_bits(y, mlx_rows(x, matrix, fused=True))


@pytest.mark.parametrize("strict", [True, False])
def test_slices_of_arrays(strict: bool) -> None:
    x, matrix = make(PAIR)
    outputs = run_qmv(x, matrix, strict=strict, skewed=True)
    assert right(outputs[0], x, matrix)


@pytest.mark.parametrize("at", [slice(300, 301), slice(5, 9), slice(None)])
@pytest.mark.parametrize("value", [mx.inf, -mx.inf, mx.nan])
def test_infinite_inputs_and_nan_are_as_in_mlx(value: float, at: slice) -> None:
    finite, matrix = make(PAIR)
    x = mx.array(finite)
    x[1, at] = value
    strict = run_qmv(x, matrix, strict=True, inspected=False)[0]
    assert same_bits(strict, mlx_rows(x, matrix, fused=True))
    free = run_qmv(x, matrix, strict=False, inspected=False)[0]
    expected = matmul.reference(x, matrix)
    for kind in (mx.isnan, mx.isposinf, mx.isneginf):
        assert mx.array_equal(kind(free), kind(expected))
    for y, form in ((strict, True), (free, False)):
        other = run_qmv(finite, matrix, strict=form, inspected=False)[0]
        assert same_bits(y[:1], other[:1])


@pytest.mark.parametrize("strict", [True, False])
def test_the_function_runs_the_kernel(strict: bool) -> None:
    x, matrix = make(PAIR)
    with installed(inspected=False) as launched:
        y = matmul.verify_qmv(x, matrix, strict=strict)
    assert launched == ["verify_qmv"]
    assert right(y, x, matrix)


def test_the_references_are_right() -> None:
    x, matrix = make(Matmul(5, 37, 1024, 32, 4, F32))
    assert right(matmul.reference(x, matrix), x, matrix)
    assert right(matmul.row_by_row(x, matrix), x, matrix)


def test_what_is_not_supported_is_said() -> None:
    _, matrix = make(Matmul(2, 8, 128, 64, 4, BF16))
    assert matmul.supports(matrix, BF16) is None
    assert matmul.supports(matrix, BF16, strict=True) == (
        "MLX adds 128 inputs in another order than its general kernels"
    )
    assert matmul.supports(matrix, F32) == "scales and biases are bfloat16, the input is float32"
    parts = matrix.w, matrix.scales, matrix.biases
    assert "1-bit" in str(matmul.supports(Matrix(*parts, 64, 1), BF16))
    assert "groups of 16" in str(matmul.supports(Matrix(*parts, 16, 4), BF16))
    assert "int32" in str(matmul.supports(matrix, mx.int32))
    stacked = Matrix(*(part[None] for part in parts), 64, 4)
    assert matmul.supports(stacked, BF16) == "the weights are not one packed matrix"
    _, odd = make(Matmul(2, 8, 128, 64, 3, BF16))
    assert matmul.supports(odd, BF16, strict=True) is None
