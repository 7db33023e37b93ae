"""MLX's own kernels, from the headers of the installed wheel, run as ours are.

They are known to work on real GPUs, so they test the shim; and a kernel of ours that promises the
bits of one of them is compared with it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from .build import instrumented, plain
from .execute import Array, Executed, execute
from .faults import Fault
from .headers import flattened
from .running import NUMPY, from_numpy, to_numpy
from .text import Parameter, Text

JIT = "#define MLX_METAL_JIT 1\n"
QUANTIZED = ("steel/gemm/gemm.h", "quantized_utils.h", "quantized.h")
TYPES = {mx.float32: "float", mx.float16: "float16_t", mx.bfloat16: "bfloat16_t"}
CONSTANT = re.compile(r"constant (\w+) (\w+) \[\[function_constant\(\d+\)\]\];")
PARAMETER = re.compile(r"(.*?)(\w+)\s*(?:\[\[(\w+).*\]\])?")


def mlx_text(
    headers: Sequence[str],
    name: str,
    arguments: str,
    types: Mapping[str, str],
    constants: Mapping[str, int] | None = None,
) -> Text:
    """A kernel of MLX's headers as a text to build.

    Args:
        headers: below MLX's ``kernels`` folder.
        name: of the function.
        arguments: of its template.
        types: what the template's type names mean in the signature: ``{"T": "float"}``.
        constants: function constants that are not 0.
    """
    given = constants or {}
    preamble = flattened()
    source = flattened(*headers)[len(preamble) :]
    source = CONSTANT.sub(
        lambda found: f"constexpr {found[1]} {found[2]} = {given.get(found[2], 0)};", source
    )
    signature = source[source.index(f"void {name}(") :]
    signature = signature[signature.index("(") + 1 : signature.index(") {")]
    parameters = tuple(_parameters(signature, types))
    lines = tuple((headers[-1], number + 1) for number in range(source.count("\n") + 1))
    return Text(name, source, arguments, parameters, lines, JIT + preamble)


def _parameters(signature: str, types: Mapping[str, str]) -> Iterator[Parameter]:
    for part in re.split(r",(?![^\[]*\]\])", signature):
        found = PARAMETER.fullmatch(re.sub(r"\s+", " ", part).strip())
        if not found:
            raise ValueError(f"cannot read the parameter {part!r}")
        kind = re.sub(r"\w+", lambda word: types.get(word[0], word[0]), found[1]).strip()
        yield Parameter(kind, found[2], found[3] or "buffer")


def run_mlx(
    text: Text,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, tuple[tuple[int, ...], mx.Dtype]],
    threadgroups: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    *,
    fused: bool = True,
    inspected: bool = False,
) -> list[mx.array]:
    """Run a kernel of MLX.

    Args:
        text: of ``mlx_text``.
        inputs: MLX arrays, and numpy scalars for scalar parameters, by parameter; parameters that
            are left out are never read.
        outputs: shape and type by parameter.
        threadgroups: of the grid.
        threadgroup: its threads.
        fused: products and sums of one expression may be fused.
        inspected: an instrumented run comes first.

    Raises:
        Fault: the instrumented run found something.
    """
    arrays: dict[str, Array] = {
        name: to_numpy(value) if isinstance(value, mx.array) else np.array(value)
        for name, value in inputs.items()
    }
    for parameter in text.buffers:
        if parameter.name not in outputs:
            arrays.setdefault(parameter.name, np.zeros(1, np.int64))
    shapes = {name: (shape, np.dtype(NUMPY[dtype])) for name, (shape, dtype) in outputs.items()}
    grid = [count * size for count, size in zip(threadgroups, threadgroup, strict=True)]

    def once(build: Any, checked: bool) -> Executed:
        done = execute(build, text, arrays, shapes, grid, threadgroup, checked=checked)
        if done.faults:
            raise Fault("run", text.name, done.faults)
        return done

    if inspected:
        once(instrumented(text), True)
    done = once(plain(text, fused=fused), False)
    return [
        from_numpy(array, dtype)
        for array, (_, dtype) in zip(done.outputs, outputs.values(), strict=True)
    ]


def affine_qmv(
    x: mx.array,
    weight: mx.array,
    scales: mx.array,
    biases: mx.array,
    *,
    group_size: int,
    bits: int,
    fused: bool = True,
    inspected: bool = False,
) -> mx.array:
    """One row times a transposed quantized matrix, by the kernel that MLX takes for one row.

    That is ``affine_qmv_fast`` where the columns of a row are a multiple of 512 and the rows of
    the matrix of 8, else ``affine_qmv``.

    Args:
        x: shape [1, K].
        weight, scales, biases: of ``mx.quantize`` in affine mode, N rows.

    Returns:
        Shape [1, N], in the type of ``x``.
    """
    columns, rows = x.shape[-1], weight.shape[0]
    kind = TYPES[x.dtype]
    name = "affine_qmv_fast" if columns % 512 == 0 and rows % 8 == 0 else "affine_qmv"
    text = mlx_text(QUANTIZED, name, f"{kind}, {group_size}, {bits}, false", {"T": kind})
    inputs = {"w": weight, "scales": scales, "biases": biases, "x": x}
    sizes = {"in_vec_size": np.int32(columns), "out_vec_size": np.int32(rows)}
    outputs = {"y": ((1, rows), x.dtype)}
    groups = (1, (rows + 7) // 8, 1)
    how = {"fused": fused, "inspected": inspected}
    return run_mlx(text, inputs | sizes, outputs, groups, (32, 2, 1), **how)[0]
