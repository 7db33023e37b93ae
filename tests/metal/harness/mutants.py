"""Kernels broken on purpose, and how the harness is asked whether it notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from macspec.metal.kernel import Kernel, Launch

from .faults import Fault
from .inline import with_text
from .running import Outputs, run


@dataclass(frozen=True)
class Mutant:
    """One edit of a kernel's text.

    Attributes:
        name: what is broken.
        old, new: the text replaced, which stands exactly once in header and body together.
        kernel: which of the file's kernels, where there are several.
    """

    name: str
    old: str
    new: str
    kernel: str = ""


@dataclass(frozen=True)
class Case:
    """One small launch of an intact kernel.

    Attributes:
        kernel, arrays, launch: as for ``kernel(arrays, launch)``.
        right: whether the outputs have the values that they must have.
        same_bits: as for ``run``.
    """

    kernel: Kernel
    arrays: Sequence[mx.array]
    launch: Launch
    right: Callable[[Outputs], bool]
    same_bits: bool = False


def mutate(kernel: Kernel, mutant: Mutant) -> Kernel | None:
    """The broken kernel, or None where the mutant is of another one."""
    if mutant.kernel not in ("", kernel.name):
        return None
    count = kernel.header.count(mutant.old) + kernel.source.count(mutant.old)
    if not count and not mutant.kernel:
        return None
    if count != 1:
        raise ValueError(f"{mutant.name}: its text stands {count} times in {kernel.name}")
    replaced = (text.replace(mutant.old, mutant.new) for text in (kernel.header, kernel.source))
    return with_text(kernel, *replaced)


def caught(mutant: Mutant, cases: Iterable[Case]) -> str:
    """How the harness notices the mutant; empty if it does not.

    Raises:
        ValueError: the mutant's text is in none of the cases' kernels, or not just once.
    """
    met = False
    for case in cases:
        broken = mutate(case.kernel, mutant)
        if broken is None:
            continue
        met = True
        try:
            outputs = run(broken, case.arrays, case.launch, same_bits=case.same_bits)
        except Fault as fault:
            return f"{fault.layer}: {fault.lines[0]}"
        if not case.right(outputs):
            return "values"
    if not met:
        raise ValueError(f"{mutant.name}: its text stands in none of the cases' kernels")
    return ""
