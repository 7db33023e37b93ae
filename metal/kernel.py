"""A Metal kernel: its text, the names of its buffers, and how it is launched."""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import mlx.core as mx

COMMENT = re.compile(r"[ \t]*//.*")
Constants = tuple[tuple[str, Any], ...]
BODY = "// body\n"
"""The line of a ``.metal`` file below which MLX writes the signature."""


METAL = {mx.float32: "float", mx.float16: "float16_t", mx.bfloat16: "bfloat16_t"}
TYPES = tuple(METAL)
"""Of what the kernels read."""
MOST_THREADGROUP_BYTES = 32 * 1024
"""Threadgroup memory that every Apple GPU has (Metal Feature Set Tables)."""


@dataclass(frozen=True)
class Launch:
    """How one call runs.

    Attributes:
        grid: threads along x, y, z (threads, not threadgroups).
        threadgroup: threads of one threadgroup along x, y, z, at most 1,024 together.
        constants: name and value of each constant of the text: a type, an integer or a bool.
        shapes, dtypes: of the outputs.
        init: what every element of the outputs holds before the kernel; undefined without it.
        threadgroup_bytes: of the arrays whose size depends on the constants.

    Raises:
        ValueError: no Apple GPU has so much threadgroup memory.
    """

    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    constants: Constants
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[mx.Dtype, ...]
    init: float | None = None
    threadgroup_bytes: int = 0

    def __post_init__(self) -> None:
        if self.threadgroup_bytes > MOST_THREADGROUP_BYTES:
            raise ValueError(
                f"{self.threadgroup_bytes} bytes of threadgroup memory; "
                f"a GPU has {MOST_THREADGROUP_BYTES}"
            )

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """As MLX takes them; made once for all calls with the same launch."""
        found = {
            "grid": self.grid,
            "threadgroup": self.threadgroup,
            "output_shapes": [list(shape) for shape in self.shapes],
            "output_dtypes": list(self.dtypes),
        }
        return found if self.init is None else {**found, "init_value": self.init}


@dataclass(frozen=True)
class Kernel:
    """One kernel of this folder: ``NAME.metal`` and the names that MLX gives its buffers.

    Attributes:
        inputs, outputs: in the order of the buffers.
        parts: names of further ``.metal`` files whose text comes before the kernel's own.
        strided: the kernel reads inputs by their strides; MLX copies others if they have gaps.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[str, ...] = ()
    strided: bool = False

    @cached_property
    def header(self) -> str:
        """Functions and constants, in the order of ``parts`` and then of the file."""
        return "\n".join(_numbered(name, _read(name)[0]) for name in (*self.parts, self.name))

    @cached_property
    def source(self) -> str:
        """The body of the kernel, between its braces."""
        head, body = _read(self.name)
        if not body:
            raise ValueError(f"{self.name}.metal has no line {BODY.strip()!r}")
        return _numbered(self.name, body, head.count("\n") + 2)

    @cached_property
    def _functions(self) -> dict[Constants, Any]:
        """By constants. MLX has templates for these, but takes 0.5 µs for them in every call."""
        return {}

    def _function(self, constants: Constants) -> Any:
        found = self._functions.get(constants)
        if found is None:
            values = [
                dtype_name(it) if isinstance(it, mx.Dtype) else int(it) for _, it in constants
            ]
            found = self._functions[constants] = mx.fast.metal_kernel(
                name="_".join(map(str, (self.name, *values))),
                input_names=list(self.inputs),
                output_names=list(self.outputs),
                header=self.header,
                source="".join(_constant(*it) for it in constants) + self.source,
                ensure_row_contiguous=not self.strided,
            )
        return found

    def __call__(self, arrays: list[mx.array], launch: Launch) -> list[mx.array]:
        """Run on the GPU: an array for each of ``inputs`` gives one, unevaluated, for each output.

        Raises:
            RuntimeError: MLX has no Metal back end here.
        """
        function = self._function(launch.constants)
        outputs: list[mx.array] = function(inputs=arrays, **launch.arguments)
        return outputs

    def bound(self, launch: Launch) -> Callable[..., list[mx.array]]:
        """``kernel(arrays, launch)`` as ``bound(inputs=arrays)``, at half the host's time."""
        return partial(self._function(launch.constants), **launch.arguments)


def _constant(name: str, value: Any) -> str:
    """A constant as the text declares it."""
    if isinstance(value, mx.Dtype):
        return f"using {name} = {METAL[value]};\n"
    kind = "bool" if isinstance(value, bool) else "int"
    return f"constexpr {kind} {name} = {int(value)};\n"


@lru_cache(maxsize=256)
def constant(value: float | tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """An input that is the same in many launches."""
    return mx.array(value, dtype)


def _dtype(name: str) -> mx.Dtype:
    found: mx.Dtype = getattr(mx, name)
    return found


def dtype_name(dtype: mx.Dtype) -> str:
    """As users know it: float16."""
    return str(dtype).removeprefix("mlx.core.")


def _read(name: str) -> tuple[str, str]:
    """Header and body of a file of this folder."""
    text = (Path(__file__).parent / f"{name}.metal").read_text(encoding="utf-8")
    head, _, body = text.partition(BODY)
    # MLX copies the text in every call.
    return COMMENT.sub("", head), COMMENT.sub("", body)


def _numbered(name: str, text: str, line: int = 1) -> str:
    """The text with a mark by which compilers name its file and line."""
    return f'#line {line} "{name}.metal"\n{text}'


# Variants go to the process that checks them.
copyreg.pickle(mx.Dtype, lambda dtype: (_dtype, (dtype_name(dtype),)))
