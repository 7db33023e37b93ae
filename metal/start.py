"""The kernels of a session: those that this machine was found to compute right and faster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from macspec.device import on_metal
from macspec.errors import BadOptionError, brief
from macspec.kernels import MODES, Kernels
from macspec.models import Pair

from .dispatch import MetalKernels
from .outcomes import Outcomes
from .self_check import Checking, self_check
from .variants import urgent, variants_for


def kernels_for(
    pair: Pair,
    mode: str = "auto",
    report: Callable[[Checking], None] = lambda step: None,
    *,
    kv_bits: int | None = None,
    rest: bool = False,
) -> Kernels:
    """The kernels for a pair on this machine.

    On a Mac those of macspec run their self-check at the first start and after an update, and the
    outcome is kept. What the next replies may use is checked now, in some seconds; the others when
    the session is idle, and they are used from the next start on.

    Args:
        mode: auto: those that pass and are faster; off: MLX's own; strict: matmuls and Mamba-2
            that give several rows the bits that MLX gives each of them alone, whatever they cost,
            and MLX's attention.
        report: told how far a self-check is, four times a second; what it raises ends that.
        kv_bits: of the session's cache, if it is quantized.
        rest: check the others now, too.

    Raises:
        BadOptionError: there is no such mode.
    """
    if mode not in MODES:
        raise BadOptionError(f"kernels is {mode!r}; it must be one of {', '.join(MODES)}")
    if mode == "off":
        return Kernels("MLX's own: macspec's are switched off")
    if pair.target.spread is not None:  # other machines might choose others
        return Kernels("MLX's own: the target is spread over several machines")
    if not on_metal():
        return Kernels("MLX (no Metal)")
    reported: list[BaseException] = []

    def told(step: Checking) -> None:
        try:
            report(step)
        except BaseException as error:
            reported.append(error)
            raise

    try:
        strict = mode == "strict"
        return checked_kernels(pair, strict=strict, kv_bits=kv_bits, report=told, rest=rest)
    except Exception as error:
        if error in reported:
            raise
        # A chat is never refused for the sake of its speed.
        why = f"macspec's cannot be used with this pair ({brief(error)})"
        return Kernels(f"MLX's own: {why}", fallback=f"MLX's kernels compute: {why}")


def checked_kernels(
    pair: Pair,
    *,
    strict: bool = False,
    kv_bits: int | None = None,
    outcomes: Outcomes | None = None,
    report: Callable[[Checking], None] = lambda step: None,
    rest: bool = True,
) -> MetalKernels:
    """Run the self-check of the kernels that a pair could use, as far as that is still to do.

    Args:
        strict: only matmuls that keep the order of MLX's one-row kernels.
        outcomes: what is known already; None: what earlier starts found on this machine.
        kv_bits, report, rest: as for ``kernels_for``.
    """
    target, variants = variants_for(pair, strict=strict, kv_bits=kv_bits)
    known = outcomes or Outcomes()
    jobs = [(it, target.copies(it)) for it in variants]
    soon = [job for job in jobs if rest or urgent(job[0])]
    with closing(self_check(soon, known)) as steps:
        for step in steps:
            report(step)
    found = {it: known.found[str(it)] for it in variants if str(it) in known.found}
    return MetalKernels(
        pair.target.module,
        found,
        target.unsupported,
        strict=strict,
        rest=lambda: self_check(jobs, known),
        faults=known.faults,
        cut_short=known.cut_short,
    )
