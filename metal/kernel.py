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
BODY = "// body\n"
"""The line of a ``.metal`` file below which MLX writes the signature."""


TYPES = (mx.float32, mx.float16, mx.bfloat16)
"""Of what the kernels read."""


@dataclass(frozen=True)
class Launch:
    """How one call runs.

    Attributes:
        grid: threads along x, y, z (threads, not threadgroups).
        threadgroup: threads of one threadgroup along x, y, z, at most 1,024 together.
        template: name and value of each template argument: a type, an integer or a bool.
        shapes, dtypes: of the outputs.
        init: what every element of the outputs holds before the kernel; undefined without it.
    """

    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    template: tuple[tuple[str, Any], ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[mx.Dtype, ...]
    init: float | None = None

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """As MLX takes them; made once for all calls with the same launch."""
        found = {
            "template": list(self.template),
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
    def _function(self) -> Any:
        return mx.fast.metal_kernel(
            name=self.name,
            input_names=list(self.inputs),
            output_names=list(self.outputs),
            header=self.header,
            source=self.source,
            ensure_row_contiguous=not self.strided,
        )

    def __call__(self, arrays: list[mx.array], launch: Launch) -> list[mx.array]:
        """Run on the GPU: an array for each of ``inputs`` gives one, unevaluated, for each output.

        Raises:
            RuntimeError: MLX has no Metal back end here.
        """
        outputs: list[mx.array] = self._function(inputs=arrays, **launch.arguments)
        return outputs

    def bound(self, launch: Launch) -> Callable[..., list[mx.array]]:
        """``kernel(arrays, launch)`` as ``bound(inputs=arrays)``, at half the host's time."""
        return partial(self._function, **launch.arguments)


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
