"""``macspec models``: the list of what is here, what fits and what can be fetched; memory plans."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..assets import pocket
from ..config.schema import BUILT_IN
from ..device import prepare
from ..errors import BadOptionError, ModelNotFoundError, PairMismatchError
from ..heads import LoadedHead, head_in, open_head, open_own_head
from ..hosts.file import read_hosts
from ..hosts.group import Group
from ..hosts.plan import plan_group
from ..models import memory
from ..models.catalog import CONTEXT, USES, Entry, advised_draft, advised_head, best
from ..models.files import locate
from ..models.hubcache import cached_folder
from ..models.loading import Model, open_model
from ..models.machine import pressure, unified_memory, wired_advice
from ..models.memory import gigabytes
from ..models.progress import size
from ..models.rollback import untried
from ..models.scan import FoundModel, MachineMemory, OpenedModel, PairFit, scan, why_not
from ..models.sidecars import label
from ..plaintext import one_line
from ..terminal import Output
from ..worker.registry import Registry
from .table import DASH, Table, number

VERBS = {"chat": "chat", "code": "write code"}
"""What people do with the pairs that are proposed for a use."""


def list_models(known: Sequence[Entry], as_json: bool) -> None:
    """Print the machine, the models here, which can draft for which, and the catalogue.

    JSON is one object a line, with the sizes in bytes.
    """
    output, limit = Output(), 0
    here: dict[str, FoundModel] = {}
    opened: dict[str, OpenedModel] = {}
    fits: list[PairFit] = []
    for event in scan():
        match event:
            case FoundModel(name, missing=missing):
                here[name], opened[name] = event, OpenedModel(name, reason=missing)
            case MachineMemory():
                limit = event.limit
                _show_machine(output, event, as_json)
            case OpenedModel(name):
                opened[name] = event
            case PairFit():
                fits.append(event)
    fits.sort(key=lambda it: (it.target.lower(), it.draft.lower()))
    models = [(found, opened[name]) for name, found in here.items()]
    drafters = dict(_drafters(models, fits, known))
    proposals = {use: best(unified_memory(), limit, use) for use in USES}
    if as_json:
        for found, it in models:
            output.json({"model": _record(found, it, drafters.get(found.name))})
        for fit in fits:
            output.json({"match": asdict(fit)})
        for pair in known:
            uses = [use for use, it in proposals.items() if it == pair]
            record = {**asdict(pair), "fits": pair.fits(limit), "proposed": bool(uses)}
            record["proposed_for"] = uses
            record |= {"date": str(pair.date), "loaded": pair.loaded and str(pair.loaded)}
            output.json({"pair": record})
        return
    output.text(_models_table(models) or "  nothing yet\n")
    complete = {found.name for found, _ in models if found.missing is None}
    output.text("\nmatching drafts\n" if fits else "")
    for fit in fits:
        verdict = "fits" if fit.reason is None else f"no: {fit.reason}"
        if fit.reason is None and fit.made_for is not None:
            verdict += f", but was made for {fit.made_for}"
        verdict += "".join(f"; it {note}" for note in fit.notes)
        output.text(one_line(f"  {fit.target} + {fit.draft}: {verdict}") + "\n")
    output.text("\nwhat drafts for which target\n" if drafters else "")
    output.text(_table(sorted(drafters.items())))
    output.text(f"\npairs to fetch\n{_catalogue_table(known, complete, limit)}")
    untried = [pair.name for pair in known if pair.loaded is None]
    if untried:
        names = "all of these" if len(untried) == len(known) else ", ".join(untried)
        output.text(f"  not tried with macspec yet: {names}; the sizes are computed\n")
    for use, proposed in proposals.items():
        if proposed is not None:
            output.text(f"for this machine, to {VERBS[use]}: macspec models pull {proposed.name}\n")


def _show_machine(output: Output, machine: MachineMemory, as_json: bool) -> None:
    now = pressure()
    if as_json:
        record = {**asdict(machine), "pressure": now.level, "free": now.free}
        output.json({"machine": record})
    else:
        output.text(
            f"this machine: {gigabytes(machine.memory)} of memory, of which models may use "
            f"{gigabytes(machine.limit)}; pressure {now}\n\non this machine\n"
        )


def _drafters(
    models: Iterable[tuple[FoundModel, OpenedModel]],
    fits: Sequence[PairFit],
    known: Sequence[Entry],
) -> Iterator[tuple[str, str]]:
    """The targets here, each with what is to draft for it and what is missing."""
    for found, it in models:
        if it.memory is None:
            continue
        pairs = {fit.draft: fit for fit in fits if fit.target == found.name and fit.reason is None}
        usable = sorted((fit for fit in pairs.values() if fit.fits), key=_preference)
        advised = advised_draft(found.name, known)
        head = advised_head(found.name, known)
        missing = None if head is None else _missing_head(found.name, head)
        if it.reason is not None:
            verdict = it.reason
        elif it.brings is not None:
            verdict = f"its own {label(it.brings)}"
        elif usable and usable[0].head is not None and usable[0].made_for is None:
            verdict = f"{usable[0].draft}, its {label(usable[0].head)}, which is here"
            missing = None
        elif advised in pairs and pairs[advised].fits:
            verdict = f"{advised}, which is here"
        elif usable:
            verdict = f"{usable[0].draft}, which is here"
        elif pairs:
            verdict = f"{min(pairs)} is here, but both are too large for this machine"
        elif advised is not None:
            verdict = f"{advised} is missing: macspec models pull {advised}"
        elif missing is not None:
            verdict, missing = missing, None
        else:
            verdict = "no draft model known; repeated text is drafted"
        if missing is not None and it.reason is None and it.brings is None:
            verdict += f"; {missing}"
        yield found.name, verdict


def _preference(fit: PairFit) -> tuple[bool, bool, int, str]:
    """Heads made for the target, draft models, heads made for others; of each small ones first."""
    own = fit.head is not None and fit.made_for is None
    return not own, fit.head is not None, fit.memory or 0, fit.draft


def _missing_head(target: str, head: tuple[str, str]) -> str:
    method, repository = head
    return f"its {label(method)} {repository} is missing: macspec models pull {target} --head"


def _record(found: FoundModel, it: OpenedModel, drafter: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {"name": found.name, "size": found.size, "memory": it.memory}
    record |= {"fits": it.fits, "folder": found.folder, "reason": it.reason}
    record |= {"rollback": it.rollback, "head": it.head, "brings": it.brings}
    return {**record, "drafter": drafter}


def _models_table(models: Iterable[tuple[FoundModel, OpenedModel]]) -> str:
    rows = []
    for found, it in models:
        needs = DASH if it.memory is None else f"{gigabytes(it.memory)} at {it.positions}"
        note = f"rollback: {it.rollback}" if it.rollback else it.reason or ""
        if it.head:
            note = label(it.head) + (f", packaging: {it.packaging}" if it.packaging else "")
        rows.append((found.name, size(found.size), needs, _fit(it.fits), note))
    return _table(rows)


def _catalogue_table(known: Iterable[Entry], here: set[str], limit: int) -> str:
    rows = []
    for pair in known:
        download = number(pair.download, "{:.1f} GB")
        needs = number(pair.memory_8k, f"{{:.1f}} GB at {CONTEXT}")
        state = "here" if here.issuperset(pair.models) else _fit(pair.fits(limit))
        rows.append((pair.name, download, needs, state, " + ".join(pair.models)))
    return _table(rows)


def _table(rows: Sequence[Sequence[str]], indent: int = 2) -> str:
    harmless = [[one_line(cell) for cell in row] for row in rows]
    return Table("", (), harmless, left=None, indent=indent).text() if rows else ""


def _fit(fits: bool | None) -> str:
    return "" if fits is None else "fits" if fits else "too large"


def show_plan(options: argparse.Namespace, entry: Entry | None) -> int:
    """Print the plan; the exit status is 0 if it fits and 1 if not.

    ``entry`` is the catalogue's, for models that are not here yet.
    """
    prepare()
    target, draft = options.target, options.draft
    absent = [name for name in (target, draft) if name is not None and not _here(name)]
    if absent:
        return _unseen(absent, entry, options.context)
    model = _opened(target, 0)
    try:
        head = _head(model, target, draft)
    except PairMismatchError as error:
        return _show(options, model, None, None, str(error))
    drafting = None if draft is None or head is not None else _opened(draft, 1)
    off = None if drafting is None else why_not(model, drafting)
    if options.hosts is not None:
        return _show_group(options, model, drafting if off is None else None, head)
    return _show(options, model, drafting if off is None else None, head, off)


def _head(model: Model, target: str, draft: str | None) -> LoadedHead | None:
    """The head to draft with: the one asked for, or the one that the target brings along."""
    if draft == BUILT_IN:
        return None
    if draft is None and target != BUILT_IN:
        return open_own_head(model)
    files = head_in(draft, locate(draft)) if draft else head_in("built-in head", pocket().head)
    return None if files is None else open_head(files, model)


def _here(name: str) -> bool:
    return name == BUILT_IN or os.path.isdir(os.path.expanduser(name)) or bool(cached_folder(name))


def _opened(name: str, role: int) -> Model:
    return open_model(name, pocket()[role] if name == BUILT_IN else locate(name))


def _unseen(absent: list[str], entry: Entry | None, context: int | None) -> int:
    if entry is None or entry.memory_8k is None:
        raise ModelNotFoundError(
            f"{' and '.join(absent)}: not on this machine; macspec models pull "
            f"{' '.join(absent)} fetches what a plan needs"
        )
    limit = memory.device_limit()
    fits = bool(entry.fits(limit))
    output = Output()
    output.text(
        f"{entry.name}: about {entry.memory_8k:g} GB at {CONTEXT} positions, from the catalogue, "
        f"because {' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not here yet\n"
    )
    output.text(f"{'fits' if fits else 'does not fit'}: {_limits(limit)}\n")
    if context is not None and context != CONTEXT:
        output.text(f"to plan for {context} positions, first: macspec models pull {entry.name}\n")
    return 0 if fits else 1


def _show_group(
    options: argparse.Namespace, model: Model, drafting: Model | None, head: LoadedHead | None
) -> int:
    """The plan on the machines of a hosts file."""
    group = Group(read_hosts(options.hosts))
    try:
        plan = plan_group(
            group,
            model,
            drafting,
            head,
            context=options.context,
            kv_bits=options.kv_bits,
            held=sum(it.planned for it in Registry().others()),
        )
    finally:
        group.close()
    rows = [(name, f"{it}{'' if it.fits else ': too much'}") for name, it in plan.plans]
    verdict = "fits" if plan.fits else "does not fit"
    longest = f"; {plan.longest} positions do" if plan.longest and not plan.fits else ""
    rows += [("sharding", plan.how), ("verdict", verdict + longest)]
    Output().text(_table(rows, indent=0))
    return 0 if plan.fits else 1


def _show(
    options: argparse.Namespace,
    model: Model,
    drafting: Model | None,
    head: LoadedHead | None,
    off: str | None,
) -> int:
    alone, draft = model.estimate, None if drafting is None else drafting.estimate
    estimate = alone if head is None else head.beside(alone)
    kv_bits: int | None = options.kv_bits
    others = Registry().others()
    taken = sum(other.planned for other in others)
    limit = max(memory.device_limit() - taken, 0)
    demand = memory.Demand(estimate, draft, limit, kv_bits)
    longest = demand.longest(estimate.context)
    positions = options.context or longest or estimate.context
    if positions > estimate.context:
        raise BadOptionError(
            f"--context {positions}: {model.name} was made for {estimate.context} positions, "
            "so give at most that"
        )
    planned = demand.plan(positions)
    parts = ["target"]
    weights, caches = [alone.weights], [alone.cache(positions, kv_bits)]
    kept = [alone.checkpoints(positions)]
    if head is not None:
        parts.append("head")
        weights.append(head.weight_bytes)
        caches.append(estimate.cache(positions, kv_bits) - caches[0])
        kept.append(estimate.checkpoints(positions) - kept[0])
    if draft is not None:
        parts.append("draft")
        weights.append(draft.weights)
        caches.append(draft.cache(positions))
        kept.append(draft.checkpoints(positions))
    rows = [
        ("weights", _parts(parts, weights)),
        ("caches", f"{_parts(parts, caches)}, for {positions} positions"),
        ("buffers", f"{gigabytes(planned.buffers)}, an estimate for the largest pass"),
        ("total", gigabytes(planned.total)),
        ("limit", _limits(memory.device_limit())),
        *(
            ("in use", f"{gigabytes(it.planned)} by macspec process {it.pid}, for {it.pair}")
            for it in others
        ),
        ("now", f"memory pressure {pressure()}"),
        ("verdict", _verdict(planned, longest)),
    ]
    if any(kept):
        rows.insert(2, ("checkpoints", f"{_parts(parts, kept)}, of the caches"))
    if (rollback := untried(model.module).rollback_by) is not None:
        rows.append(("rollback", rollback))
    if off is not None:
        rows.append(("draft off", off))
    advice = wired_advice(planned.total + taken, memory.device_limit())
    if not planned.fits and advice is not None:
        rows.append(("wired limit", advice))
    Output().text(_table(rows, indent=0))
    return 0 if planned.fits else 1


def _parts(names: Iterable[str], sizes: list[int]) -> str:
    return ", ".join(f"{name} {gigabytes(it)}" for name, it in zip(names, sizes, strict=True))


def _limits(limit: int) -> str:
    return f"models may use {gigabytes(limit)} of {gigabytes(unified_memory())}"


def _verdict(planned: memory.MemoryPlan, longest: int) -> str:
    if not planned.fits:
        over = gigabytes(planned.total - planned.limit)
        return f"does not fit, by {over}" + (f"; {longest} positions do" if longest else "")
    return "fits" if longest <= planned.context else f"fits; up to {longest} positions do"
