"""Rows times a quantized matrix: MLX's bits where promised, right values, weights read once."""

from __future__ import annotations

import itertools
import random

import mlx.core as mx
import pytest
from harness import Outputs, installed, run
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import Matmul, make, mlx_rows, right, same_bits

from macspec.metal import matmul, variants
from macspec.metal.matmul import BITS, GROUP_SIZES, QMM, QMT, QMV, STRICT, TYPES, Matrix

F32, F16, BF16 = mx.float32, mx.float16, mx.bfloat16
EVERY = tuple(matmul.KERNELS)
BY_BLOCKS = (QMM.name, QMT.name)
PLAIN = dict.fromkeys(BY_BLOCKS, Matmul(8, 32, 1024, 64, 4, BF16))
"""A small product for each kernel that takes another one than ``PAIR``."""
PAIR = Matmul(2, 16, 512, 64, 4, BF16)
QMV_CASES = (
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
FLOAT_CASES = (
    Matmul(2, 19, 288, 32, 4, BF16, "mxfp4"),
    Matmul(8, 37, 1024, 32, 8, F32, "mxfp8"),
    Matmul(5, 40, 512, 16, 4, F16, "nvfp4"),
)
FEW = tuple(case for case in QMV_CASES if (case.rows, case.inputs) not in ((8, 96), (1, 256)))
"""For the default run: every number of bits, whole and partial tiles, both of MLX's kernels."""
QMM_CASES = (
    PLAIN[QMM.name],
    Matmul(9, 37, 480, 32, 4, F32),
    Matmul(16, 21, 2048, 128, 8, F16),
    Matmul(1, 40, 96, 32, 3, F32),
    Matmul(5, 7, 192, 64, 5, BF16),
    Matmul(24, 33, 256, 32, 6, BF16),
    Matmul(32, 64, 4096, 64, 2, F16),
)


def drawn(
    rows: tuple[int, ...], outputs: tuple[int, ...], inputs: tuple[int, ...]
) -> tuple[Matmul, ...]:
    """One product for each number of inputs, of bits and type; the rest by chance."""
    choice = random.Random(0)
    return tuple(
        Matmul(choice.choice(rows), choice.choice(outputs), size, choice.choice(GROUP_SIZES), *how)
        for size, *how in itertools.product(inputs, BITS, TYPES)
    )


QMV_MORE = drawn((1, 2, 5, 8, 9, 16), (8, 11, 24, 29, 64), (512, 768, 384))
QMM_MORE = drawn((6, 9, 12, 16, 17, 25, 32, 40), (11, 29, 32, 64, 96), (384, 2176))


def run_matmul(kernel: str, x: mx.array, matrix: Matrix, **how: bool) -> Outputs:
    """By one kernel; parts that it leaves to add are added."""
    outputs = run(matmul.KERNELS[kernel], *matmul.call(kernel, x, matrix), **how)
    for found in (outputs, outputs.unfused):
        if found[0].ndim == 3:
            found[0] = found[0].sum(axis=0).astype(x.dtype)
    return outputs


def check(kernel: str, case: Matmul) -> None:
    """Values, bits where the kernel is strict, and how often weights are read."""
    x, matrix = make(case)
    outputs = run_matmul(kernel, x, matrix)
    for fused, y in ((True, outputs[0]), (False, outputs.unfused[0])):
        assert right(y, x, matrix, rounded=kernel == QMT.name)
        if kernel == STRICT:
            assert same_bits(y, mlx_rows(x, matrix, fused=fused))
    times = -(-case.rows // (matmul.QMM_ROWS if kernel in BY_BLOCKS else matmul.QMV_ROWS))
    weights = outputs.report.traffic["w"]
    assert (weights.least, weights.most) == (times, times)
    assert outputs.report.threadgroup_bytes == matmul.call(kernel, x, matrix)[1].threadgroup_bytes
    assert not outputs.report.warnings


def every(cases: dict[str, tuple[Matmul, ...]]) -> list[object]:
    return [
        pytest.param(kernel, case, id=f"{kernel}-{case}")
        for kernel, some in cases.items()
        for case in some
    ]


@pytest.mark.parametrize(
    ("kernel", "case"),
    every(
        {
            STRICT: FEW,
            QMV.name: FEW[::3] + FLOAT_CASES,
            QMM.name: QMM_CASES[::4] + FLOAT_CASES[1:],
            QMT.name: (Matmul(9, 37, 480, 32, 4, F16), *FLOAT_CASES[::2]),
        }
    ),
)
def test_values_are_right_and_weights_are_read_once(kernel: str, case: Matmul) -> None:
    check(kernel, case)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "case"),
    every(
        {
            STRICT: QMV_CASES + QMV_MORE,
            QMV.name: QMV_CASES[::2] + QMV_MORE[::5],
            QMM.name: QMM_CASES[1::2] + QMM_CASES[2::4] + QMM_MORE,
            QMT.name: tuple(it for it in QMM_CASES + QMM_MORE[::4] if it.dtype != F32),
        }
    ),
)
def test_every_kind_of_matrix(kernel: str, case: Matmul) -> None:
    check(kernel, case)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rows=st.sampled_from((2, 16)),
    outputs=st.integers(1, 70),
    groups=st.integers(1, 40).filter(lambda groups: groups not in (2, 4)),
    seed=st.integers(0, 1000),
)
def test_any_size(rows: int, outputs: int, groups: int, seed: int) -> None:
    x, matrix = make(Matmul(rows, outputs, 32 * groups, 32, 4, F32), seed)
    strict = run_matmul(STRICT, x, matrix, inspected=False)
    assert same_bits(strict[0], mlx_rows(x, matrix, fused=True))
    assert right(run_matmul(QMV.name, x, matrix, inspected=False)[0], x, matrix)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rows=st.integers(9, 16),
    outputs=st.integers(1, 100),
    groups=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_any_size_in_simdgroup_matrices(rows: int, outputs: int, groups: int, seed: int) -> None:
    x, matrix = make(Matmul(rows, outputs, 32 * groups, 32, 4, F32), seed)
    assert right(run_matmul(QMM.name, x, matrix, inspected=False)[0], x, matrix)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "case"),
    every(
        {
            STRICT: (Matmul(5, 151_936, 96, 32, 4, BF16), Matmul(5, 4099, 96, 32, 4, BF16)),
            QMV.name: (Matmul(5, 4099, 96, 32, 4, BF16),),
            QMM.name: (Matmul(9, 151_936, 32, 32, 4, BF16),),
        }
    ),
)
def test_a_whole_vocabulary(kernel: str, case: Matmul) -> None:
    check(kernel, case)


def test_half_a_simdgroup_a_row_where_the_matrix_is_tall() -> None:
    case = Matmul(3, matmul.WIDE + 5, 64, 64, 4, BF16)
    assert dict(matmul.call(QMV.name, *make(case))[1].constants)["SHAPE"] >> 16 & 1
    check(QMV.name, case)


def test_a_narrow_matrix_is_split_along_its_inputs() -> None:
    x, matrix = make(Matmul(16, 32, 8192, 64, 4, BF16))
    _, launch = matmul.call(QMM.name, x, matrix)
    assert launch.grid[2] == 4
    assert launch.shapes == ((4, 16, 32),)
    assert launch.dtypes == (F32,)
    with installed(inspected=False) as launched:
        y = matmul.multiply(matmul.QMM.name, x, matrix)
    assert launched == ["verify_qmm"]
    assert right(y, x, matrix)


@pytest.mark.parametrize(
    ("kernel", "rows", "outputs", "bits"),
    [
        (STRICT, 1, 7, 4),
        (STRICT, 1, 8, 4),
        (QMV.name, 1, 7, 4),
        (QMV.name, 1, 3, 2),
        (QMM.name, 8, 7, 4),
        (QMM.name, 8, 3, 2),
    ],
)
def test_inputs_of_fewer_than_eight_elements(
    kernel: str, rows: int, outputs: int, bits: int
) -> None:
    """They come in constant memory: 7 scales and not 8, 6 words."""
    x, matrix = make(Matmul(rows, outputs, 32, 32, bits, F32))
    y = run_matmul(kernel, x, matrix)[0]
    assert right(y, x, matrix)
    if kernel == STRICT:
        assert same_bits(y, mlx_rows(x, matrix, fused=True))


@pytest.mark.parametrize("kernel", EVERY)
def test_slices_of_arrays(kernel: str) -> None:
    x, matrix = make(PLAIN.get(kernel, PAIR))
    y = run_matmul(kernel, x, matrix, skewed=True)[0]
    assert right(y, x, matrix, rounded=kernel == QMT.name)


@pytest.mark.parametrize("at", [slice(300, 301), slice(5, 9), slice(None)])
@pytest.mark.parametrize("value", [mx.inf, -mx.inf, mx.nan])
@pytest.mark.parametrize("kernel", EVERY)
def test_infinite_inputs_and_nan_spoil_their_own_row_only(
    kernel: str, value: float, at: slice
) -> None:
    finite, matrix = make(PLAIN.get(kernel, PAIR))
    x = mx.array(finite)
    x[1, at] = value
    y = run_matmul(kernel, x, matrix, inspected=False)[0]
    if kernel == STRICT:
        assert same_bits(y, mlx_rows(x, matrix, fused=True))
    else:
        expected = matmul.reference(x, matrix)
        for kind in (mx.isnan, mx.isposinf, mx.isneginf):
            assert mx.array_equal(kind(y), kind(expected))
    undisturbed = run_matmul(kernel, finite, matrix, inspected=False)[0]
    kept = mx.array([0, *range(2, x.shape[0])])
    assert same_bits(y[kept], undisturbed[kept])


@pytest.mark.parametrize("kernel", [QMV.name, STRICT])
def test_the_function_runs_the_kernel(kernel: str) -> None:
    x, matrix = make(PAIR)
    with installed(inspected=False) as launched:
        y = matmul.multiply(kernel, x, matrix)
    assert launched == [kernel]
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


@pytest.mark.parametrize(
    ("architecture", "macos", "has"),
    [
        ("applegpu_g17s", "26.2", True),
        ("applegpu_g18d", "27.0.1", True),
        ("applegpu_g17s", "26.1", False),
        ("applegpu_g16s", "26.4", False),
        ("", "26.4", False),
        ("applegpu_g17s", "", False),
    ],
)
def test_tensor_units_depend_on_chip_and_system(
    monkeypatch: pytest.MonkeyPatch, architecture: str, macos: str, has: bool
) -> None:
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": architecture})
    monkeypatch.setattr("platform.mac_ver", lambda: (macos, ("", "", ""), ""))
    assert matmul.has_tensor_units() == has
    shape = matmul.Matmul(4, 64, 512, 512, BF16)
    kernels = {it.kernel for it in variants._of_matmul(shape, False) if it.rows == 8}
    assert kernels == {QMV.name, QMM.name, *[QMT.name][: int(has)]}


@pytest.mark.parametrize(
    ("architecture", "left"),
    [("applegpu_g13s", ()), ("applegpu_g14d", ()), ("applegpu_g15g", (2, 32)), ("", ())],
)
def test_rows_that_mlx_takes_best_are_no_candidates(
    monkeypatch: pytest.MonkeyPatch, architecture: str, left: tuple[int, ...]
) -> None:
    """Where it reads affine weights once for several rows; strict and small floats are as ever."""
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": architecture})

    def rows(mode: str = "affine", *, strict: bool = False) -> set[int]:
        shape = matmul.Matmul(4, 32, 512, 512, BF16, mode)
        return {it.rows for it in variants._of_matmul(shape, strict)}

    every = {*variants.MATMUL_ROWS}
    assert rows() == every - {*left}
    assert rows("mxfp4") == every
    assert rows(strict=True) == {it for it in every if it <= 8}
