"""The model scan: which models and heads are on this machine, what they need, and which can draft
for which.

As a program it writes one JSON object a line, so that the app can ask without MLX:
``python -m macspec.models.scan [FOLDER ...]``. Importing it is cheap.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MacspecError, brief
from .catalog import CONTEXT
from .machine import unified_memory

if TYPE_CHECKING:
    from ..heads import HeadFiles
    from .loading import Model


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine; nothing of it has been read yet."""

    name: str
    """Its id on the hub, or its folder as it was given."""
    folder: str
    size: int
    """Bytes on the disk, in the hub's cache with older revisions and parts of files."""
    missing: str | None
    """Why it cannot be loaded, in one sentence; None where it is complete."""
    stamp: str
    """Changes when its files change."""


@dataclass(frozen=True, slots=True)
class ScanListed:
    """Every model has been found; they are opened next."""


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """The memory of this machine, in bytes."""

    memory: int
    limit: int
    """What models may use of it."""


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """What is known of a model without its weights."""

    name: str
    parameters: int | None = None
    context: int | None = None
    """Positions that it was made for; None where it cannot be loaded."""
    memory: int | None = None
    """Bytes that it needs alone at ``positions``."""
    positions: int = CONTEXT
    fits: bool | None = None
    reason: str | None = None
    """Why it cannot be loaded, or runs without drafts; None where it has no such limits."""
    rollback: str | None = None
    """How rows are taken back from its stateful layers, to be tried when it is loaded; None: it has
    none."""
    head: str | None = None
    """The drafting method of a head that is no model by itself."""
    packaging: str | None = None
    """Who packaged it, where that tells how it is to be read."""
    brings: str | None = None
    """The drafting method of the head that comes with a target, counted in ``memory``."""


@dataclass(frozen=True, slots=True)
class PairFit:
    """Whether a smaller model, or a head, can draft for a target."""

    target: str
    draft: str
    reason: str | None
    """Why it cannot, in one sentence; None where it can."""
    memory: int | None
    """Bytes that both need at ``positions``; None where they are no pair."""
    positions: int
    fits: bool | None
    head: str | None = None
    """The drafting method of a head."""
    made_for: str | None = None
    """The target that a head was made for, where that is another one."""
    notes: tuple[str, ...] = ()
    """What is odd about a head's files, and was put right, each continuing "the head"."""


ScanEvent = FoundModel | ScanListed | MachineMemory | OpenedModel | PairFit

EVENTS: dict[str, type[ScanEvent]] = {
    "found": FoundModel,
    "listed": ScanListed,
    "machine": MachineMemory,
    "opened": OpenedModel,
    "fit": PairFit,
}


def scan(folders: Sequence[str] = ()) -> Iterator[ScanEvent]:
    """Look at the models of the hub's cache and at these folders.

    Where they are comes first and at once; then MLX is imported, which takes a second.
    """
    from .hubcache import cached_models
    from .sidecars import kept_heads

    kept = (str(it) for it in kept_heads())
    found = [*cached_models(), *map(_folder, dict.fromkeys([*folders, *kept]))]
    yield from found
    yield ScanListed()
    from ..device import prepare
    from ..heads import head_in
    from .loading import open_model
    from .memory import device_limit

    prepare()
    limit = device_limit()
    yield MachineMemory(unified_memory(), limit)
    able: list[Model] = []
    heads: list[HeadFiles] = []
    for it in found:
        if it.missing is None:
            try:
                if (head := head_in(it.name, Path(it.folder))) is not None:
                    heads.append(head)
                    yield OpenedModel(
                        it.name, head=head.kind, packaging=head.packaging, reason=NO_MODEL
                    )
                    continue
                model = open_model(it.name, Path(it.folder))
            except MacspecError as error:
                yield OpenedModel(it.name, reason=str(error).removeprefix(f"{it.name}: "))
                continue
            yield _opened(model, limit)
            yield from (fit for other in able for fit in _pair_fit(model, other, limit))
            able.append(model)
    yield from (_head_fit(target, head, limit) for target in able for head in heads)


NO_MODEL = "a head, which drafts for a target and is no model by itself"


def _folder(name: str) -> FoundModel:
    if not Path(name).is_dir():
        return FoundModel(name, name, 0, "the folder no longer exists", "")
    try:
        files = [file.stat() for file in Path(name).iterdir() if file.is_file()]
    except OSError as error:
        return FoundModel(name, name, 0, f"the folder cannot be read ({brief(error)})", "")
    newest = max((file.st_mtime_ns for file in files), default=0)
    size = sum(file.st_size for file in files)
    return FoundModel(name, name, size, None, f"{newest} {size}")


def _opened(model: Model, limit: int) -> OpenedModel:
    from ..heads import open_own_head
    from .memory import Demand
    from .rollback import untried

    cache, size, context = untried(model.module), model.parameters, model.context
    reason, estimate, brings = cache.reason, model.estimate, None
    try:
        if (head := open_own_head(model)) is not None:
            estimate, brings = head.beside(estimate), head.kind
    except MacspecError as error:
        reason = reason or str(error)
    needs = Demand(estimate, None, limit).plan(min(CONTEXT, context))
    memory = needs.total, needs.context, needs.fits
    return OpenedModel(model.name, size, context, *memory, reason, cache.rollback_by, brings=brings)


def _head_fit(target: Model, files: HeadFiles, limit: int) -> PairFit:
    """How a head does for a target."""
    from ..heads import open_head
    from .memory import Demand
    from .rollback import untried
    from .sidecars import made_for_another

    positions = min(CONTEXT, target.context)
    reason = untried(target.module).reason
    try:
        head = open_head(files, target)
        both = Demand(head.beside(target.estimate), None, limit)
    except MacspecError as error:
        reason = str(error).removeprefix(f"the head {files.name} is off: ")
    made_for = made_for_another(files, target.name)
    if reason is not None:
        return PairFit(target.name, files.name, reason, None, positions, None, files.kind, made_for)
    plan = both.plan(positions)
    costs = plan.total, positions, plan.fits
    return PairFit(target.name, files.name, None, *costs, files.kind, made_for, head.notes)


def _pair_fit(one: Model, other: Model, limit: int) -> Iterator[PairFit]:
    """How the smaller of two models does as a draft for the larger; nothing for equal sizes."""
    from .memory import Demand

    draft, target = sorted((one, other), key=lambda it: it.parameters)
    if draft.parameters == target.parameters:
        return
    positions = min(CONTEXT, target.context)
    reason = why_not(target, draft)
    if reason is not None:
        yield PairFit(target.name, draft.name, reason, None, positions, None)
        return
    both = Demand(target.estimate, draft.estimate, limit).plan(positions)
    yield PairFit(target.name, draft.name, None, both.total, positions, both.fits)


def why_not(target: Model, draft: Model) -> str | None:
    """Why one model cannot draft for another, in one sentence; None if it can."""
    from .rollback import untried
    from .vocabulary import mismatch

    if (off := untried(target.module).reason) is not None:
        return off
    if (off := untried(draft.module).reason) is not None:
        return f"a draft model must be able to take tokens back, but {off}"
    return mismatch(target.tokenizer, draft.tokenizer)


def main(folders: Sequence[str]) -> int:
    """Write the events of a scan to standard output."""
    # By the names of classes: run as a program, this module is there twice.
    names = {kind.__name__: name for name, kind in EVENTS.items()}
    try:
        for event in scan(folders):
            print(json.dumps({"event": names[type(event).__name__], **asdict(event)}), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MacspecError as error:
        print(json.dumps({"event": "failed", "message": str(error)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
