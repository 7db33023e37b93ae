"""The text that MLX itself writes for a kernel, and what stands in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

NAME, SOURCE, GRID, THREADGROUP, CONTIGUOUS = 0, 1, slice(2, 5), slice(5, 8), 9
"""Where the export callback's list of a custom kernel's arguments holds what we read."""
PARAMETER = re.compile(r"\s*(?P<type>.*?)(?P<name>\w+) \[\[(?P<attribute>\w+)(?:\(\d+\))?\]\]\s*,?")
MARK = re.compile(r'^#line (\d+) "(.*)"$', re.M)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: ``attribute`` is ``buffer`` or the name of a thread's position."""

    type: str
    name: str
    attribute: str


@dataclass(frozen=True)
class Text:
    """A kernel as the Metal compiler gets it.

    Attributes:
        name: of the function.
        source: without the ``#line`` directives; see ``place``.
        arguments: of the template, empty without one.
        parameters: in the order of the signature.
        lines: for each line of ``source``, the file and line it comes from.
        preamble: what comes before it.
    """

    name: str
    source: str
    arguments: str
    parameters: tuple[Parameter, ...]
    lines: tuple[tuple[str, int], ...]
    preamble: str

    @property
    def instance(self) -> str:
        """The function to call."""
        return f"{self.name}<{self.arguments}>" if self.arguments else self.name

    @property
    def buffers(self) -> list[Parameter]:
        """The parameters that are buffers, in binding order."""
        return [parameter for parameter in self.parameters if parameter.attribute == "buffer"]

    def place(self, line: int, column: int) -> str:
        """The file, line and column of a place in ``source``, counted from 1."""
        file, number = self.lines[line - 1] if 0 < line <= len(self.lines) else ("", line)
        return f"{file}:{number}:{column}"


@dataclass(frozen=True)
class Exported:
    """One recorded call of a kernel.

    Attributes:
        text: what the Metal compiler gets.
        source: the same with its ``#line`` directives.
        grid, threadgroup: in threads.
        contiguous: MLX copies inputs that are not row-contiguous.
    """

    text: Text
    source: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    contiguous: bool


def export(call: Callable[..., Any], arrays: Sequence[mx.array], preamble: str) -> Exported:
    """Trace ``call(*arrays)``, which launches one custom kernel, as MLX does on every system."""
    records: list[dict[str, Any]] = []
    mx.export_function(records.append, call, *arrays)
    kernels = [record for record in records if record.get("name") == "CustomKernel"]
    if len(kernels) != 1:
        raise ValueError(f"expected one custom kernel, MLX recorded {len(kernels)}")
    arguments = kernels[0]["arguments"]
    return Exported(
        parse(arguments[NAME], arguments[SOURCE], preamble),
        arguments[SOURCE],
        tuple(arguments[GRID]),
        tuple(arguments[THREADGROUP]),
        arguments[CONTIGUOUS],
    )


def parse(name: str, source: str, preamble: str) -> Text:
    """Take MLX's text apart."""
    kept, lines = [], []
    file, number = "kernel.metal", 1
    for line in source.split("\n"):
        if mark := MARK.fullmatch(line):
            file, number = mark[2], int(mark[1])
            continue
        kept.append(line)
        lines.append((file, number))
        number += 1
    source = "\n".join(kept)
    _, _, instance = source.partition(f"decltype({name}<")
    signature = source[source.index(f"void {name}(") :]
    signature = signature[signature.index("(") + 1 : signature.index(") {")]
    parameters = tuple(
        Parameter(found["type"].strip(), found["name"], found["attribute"])
        for found in PARAMETER.finditer(signature)
    )
    return Text(name, source, instance.partition(">) ")[0], parameters, tuple(lines), preamble)
