"""Kernels whose text is not a file's: texts of tests, and altered copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from macspec.metal.kernel import Kernel


def inline(
    source: str, inputs: Sequence[str], outputs: Sequence[str], *, header: str = ""
) -> Kernel:
    """A kernel called ``inline`` with the given body."""
    return with_text(Kernel("inline", tuple(inputs), tuple(outputs)), header, source)


def with_text(kernel: Kernel, header: str, source: str) -> Kernel:
    """The same kernel with another text."""
    copy = dataclasses.replace(kernel)
    vars(copy).update(header=header, source=source)
    return copy
