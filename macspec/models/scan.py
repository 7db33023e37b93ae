"""The model scan: which models are on this machine, what they need, and which can draft for which.

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


@dataclass(frozen=True, slots=True)
class PairFit:
    """Whether a smaller model can draft for a target."""

    target: str
    draft: str
    reason: str | None
    """Why it cannot, in one sentence; None where it can."""
    memory: int | None
    """Bytes that both need at ``positions``; None where they are no pair."""
    positions: int
    fits: bool | None


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

    Where they are comes first and at once; MLX is imported after that.
    """
    from .hubcache import cached_models

    found = [*cached_models(), *map(_folder, folders)]
    yield from found
    yield ScanListed()
    # Only now: it takes a second.
    from ..device import prepare
    from .memory import device_limit

    prepare()
    limit = device_limit()
    yield MachineMemory(unified_memory(), limit)
    yield from _opened([it for it in found if it.missing is None], limit)


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


def _opened(found: Sequence[FoundModel], limit: int) -> Iterator[ScanEvent]:
    from .memory import plan

    able: list[Candidate] = []
    for it in found:
        new = candidate(it.name, Path(it.folder))
        if new.model is None:
            yield OpenedModel(it.name, reason=new.reason)
            continue
        context = new.model.context
        needs = plan(new.model.estimate, None, min(CONTEXT, context), None, limit)
        size = new.model.parameters
        yield OpenedModel(
            it.name, size, context, needs.total, needs.context, needs.fits, new.reason
        )
        for other in able:
            yield from pair_fit(new, other, limit)
        able.append(new)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model on this machine, opened as far as the compatibility checks need it."""

    name: str
    model: Model | None
    """None where it cannot be loaded."""
    reason: str | None
    """Why it cannot be loaded, or runs without drafts; None where it has no such limits."""

    @property
    def parameters(self) -> int:
        """How many weights it has; 0 where it cannot be loaded."""
        return 0 if self.model is None else self.model.parameters


def candidate(name: str, folder: Path) -> Candidate:
    """Open a model; what is wrong with it becomes its ``reason`` and is not raised."""
    from ..cache import ModelCache
    from .loading import open_model

    try:
        model = open_model(name, folder)
        return Candidate(name, model, ModelCache(model.module).reason)
    except MacspecError as error:
        return Candidate(name, None, str(error).removeprefix(f"{name}: "))


def pair_fit(one: Candidate, other: Candidate, limit: int) -> Iterator[PairFit]:
    """How the smaller of two models does as a draft for the larger; nothing for equal sizes."""
    from .memory import plan

    draft, target = sorted((one, other), key=lambda it: it.parameters)
    if draft.parameters == target.parameters:
        return
    assert target.model is not None
    assert draft.model is not None
    positions = min(CONTEXT, target.model.context)
    reason = why_not(target, draft)
    if reason is not None:
        yield PairFit(target.name, draft.name, reason, None, positions, None)
        return
    both = plan(target.model.estimate, draft.model.estimate, positions, None, limit)
    yield PairFit(target.name, draft.name, None, both.total, positions, both.fits)


def why_not(target: Candidate, draft: Candidate) -> str | None:
    """Why one model cannot draft for another, in one sentence; None if it can."""
    from .pair import mismatch, vocabulary_size

    assert target.model is not None
    assert draft.model is not None
    if target.reason is not None:
        return target.reason
    if draft.reason is not None:
        return f"a draft model must be able to take tokens back, but {draft.reason}"
    vocabulary = min(target.model.width, vocabulary_size(target.model.tokenizer))
    return mismatch(target.model, draft.model, vocabulary)


def main(folders: Sequence[str]) -> int:
    """Write the events of a scan to standard output."""
    names = {kind: name for name, kind in EVENTS.items()}
    try:
        for event in scan(folders):
            print(json.dumps({"event": names[type(event)], **asdict(event)}), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MacspecError as error:
        print(json.dumps({"event": "failed", "message": str(error)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
