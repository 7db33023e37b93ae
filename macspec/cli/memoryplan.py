"""``macspec models plan``: what a pair needs in memory, and whether this machine has it."""

from __future__ import annotations

import os

from ..assets import pocket
from ..cache import KV_BITS
from ..device import prepare
from ..errors import BadOptionError, ModelNotFoundError
from ..models import memory
from ..models.catalog import CONTEXT, Entry
from ..models.files import locate
from ..models.hubcache import cached_folder
from ..models.machine import pressure, unified_memory, wired_advice
from ..models.memory import MemoryEstimate, gigabytes
from ..models.scan import Candidate, candidate, why_not
from ..plaintext import one_line
from ..terminal import Output
from ..worker.registry import Registry, Running

BUILT_IN = "built-in"


def show_plan(
    target: str,
    draft: str | None,
    entry: Entry | None,
    context: int | None,
    kv_bits: int | None,
) -> int:
    """Print the plan; the exit status is 0 if it fits and 1 if not.

    Args:
        target, draft: folders, ids, or ``built-in``.
        entry: the catalogue's word on them, for what is not here yet.
        context: positions; None: the target's own, or as many as fit.
        kv_bits: bits of the target's quantized cache.

    Raises:
        BadOptionError: a value out of range.
        ModelNotFoundError: a model is not here and the catalogue does not know it.
        ModelBrokenError: one cannot be loaded.
    """
    prepare()
    if kv_bits is not None and kv_bits not in KV_BITS:
        raise BadOptionError(f"--kv-bits {kv_bits}: choose one of {', '.join(map(str, KV_BITS))}")
    if target == BUILT_IN and draft is None:
        draft = BUILT_IN
    absent = [name for name in (target, draft) if name is not None and not _here(name)]
    if absent:
        return _unseen(absent, entry, context)
    opened = _opened(target, 0)
    drafting = None if draft is None else _opened(draft, 1)
    off = why_not(opened, drafting) if drafting is not None else None
    used = drafting.estimate if drafting is not None and off is None else None
    assert opened.estimate is not None
    return _show(opened, opened.estimate, used, off, context, kv_bits)


def _here(name: str) -> bool:
    return name == BUILT_IN or os.path.isdir(os.path.expanduser(name)) or bool(cached_folder(name))


def _opened(name: str, role: int) -> Candidate:
    folder = pocket()[role] if name == BUILT_IN else locate(name)
    found = candidate(name, folder)
    if found.model is None:
        raise ModelNotFoundError(f"{name}: {found.reason}")
    return found


def _unseen(absent: list[str], entry: Entry | None, context: int | None) -> int:
    """What the catalogue says of models that are not here."""
    if entry is None or entry.memory_8k is None:
        raise ModelNotFoundError(
            f"{' and '.join(absent)}: not on this machine: macspec models pull "
            f"{' '.join(absent)} fetches what a plan is made from"
        )
    limit = memory.device_limit()
    fits = bool(entry.fits(limit))
    output = Output()
    output.text(
        f"{entry.name}: about {entry.memory_8k:g} GB at {CONTEXT} positions, from the catalogue, "
        f"since {' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not here yet\n"
    )
    output.text(f"{'fits' if fits else 'does not fit'}: {_limits(limit)}\n")
    if context is not None and context != CONTEXT:
        output.text(f"for {context} positions: macspec models pull {entry.name} first\n")
    return 0 if fits else 1


def _show(
    target: Candidate,
    estimate: MemoryEstimate,
    draft: MemoryEstimate | None,
    off: str | None,
    context: int | None,
    kv_bits: int | None,
) -> int:
    others = Registry().others()
    taken = sum(other.planned for other in others)
    limit = max(memory.device_limit() - taken, 0)
    longest = memory.longest_context(estimate, draft, kv_bits, limit)
    positions = context or longest or estimate.context
    if positions > estimate.context:
        raise BadOptionError(
            f"--context {positions}: {target.name} was made for {estimate.context} positions, "
            "give at most that"
        )
    planned = memory.plan(estimate, draft, positions, kv_bits, limit)
    weights, caches = [estimate.weights], [estimate.cache(positions, kv_bits)]
    if draft is not None:
        weights.append(draft.weights)
        caches.append(draft.cache(positions))
    rows = [
        ("weights", _parts(weights)),
        ("caches", f"{_parts(caches)}, for {positions} positions"),
        ("buffers", f"{gigabytes(planned.buffers)}, of the largest pass; an estimate"),
        ("together", gigabytes(planned.total)),
        ("limit", _limits(memory.device_limit())),
        *(("in use", _holder(other)) for other in others),
        ("now", f"memory pressure {pressure()}"),
        ("verdict", _verdict(planned, longest, estimate.context)),
    ]
    if off is not None:
        rows.append(("draft off", off))
    advice = wired_advice(planned.total + taken, memory.device_limit())
    if not planned.fits and advice is not None:
        rows.append(("wired limit", advice))
    output = Output()
    for label, text in rows:
        output.text(f"{label:<11}  {one_line(text)}\n")
    return 0 if planned.fits else 1


def _parts(sizes: list[int]) -> str:
    names = ("target", "draft")
    parts = [f"{name} {gigabytes(size)}" for name, size in zip(names, sizes, strict=False)]
    return ", ".join(parts)


def _limits(limit: int) -> str:
    return f"{gigabytes(limit)} of the {gigabytes(unified_memory())} are for models"


def _holder(other: Running) -> str:
    return f"{gigabytes(other.planned)} by macspec's process {other.pid}, for {other.pair}"


def _verdict(planned: memory.MemoryPlan, longest: int, own: int) -> str:
    if not planned.fits:
        over = gigabytes(planned.total - planned.limit)
        return f"does not fit, by {over}" + (f"; {longest} positions do" if longest else "")
    return "fits" if longest <= planned.context else f"fits; up to {min(longest, own)} positions do"
