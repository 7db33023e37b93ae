"""``macspec models``: what is here, what fits, what can be fetched, and making models smaller."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any

from ..config import load
from ..errors import BadOptionError, ModelNotFoundError
from ..models.catalog import Entry, catalogue, find
from ..models.progress import Cancelled, Listed, Progress, Pulled, Retrying, size
from ..terminal import Output, interruptible, say
from .progressbar import ProgressBar


def models(options: argparse.Namespace) -> int:
    """Do what ``options.action`` says and return the exit status."""
    actions = {
        "list": _list,
        "pull": _pull,
        "rm": _remove,
        "plan": _plan,
        "quantize": _quantize,
        "convert": _convert,
    }
    return actions[options.action](options)


def pairs() -> tuple[Entry, ...]:
    """The catalogue with the pairs of the settings."""
    return catalogue(load().config.pairs)


def _list(options: argparse.Namespace) -> int:
    from .modellist import list_models

    list_models(pairs(), options.json)
    return 0


def _plan(options: argparse.Namespace) -> int:
    from .memoryplan import BUILT_IN, show_plan

    target, draft = options.target, options.draft
    entry = None
    if target != BUILT_IN and "/" not in target and not os.path.isdir(target):
        entry = find(target, pairs())
        target, draft = entry.target, draft or entry.draft
    return show_plan(target, draft, entry, options.context, options.kv_bits)


def _pull(options: argparse.Namespace) -> int:
    from ..models.download import pull

    names = [id for name in options.names for id in _ids(name)]
    output, bar = Output(), ProgressBar()
    try:
        with interruptible():
            for event in pull(names):
                if options.json:
                    kind = type(event).__name__.lower()
                    output.json({"event": kind, **_plain(asdict(event))})
                elif isinstance(event, Progress):
                    bar.show(event)
                else:
                    bar.end()
                    _tell(event, output)
    finally:
        bar.end()
    return 0


def _tell(event: Listed | Retrying | Cancelled | Pulled, output: Output) -> None:
    if isinstance(event, Listed):
        have = f", {size(event.present)} of it are here" if event.present else ""
        say(f"{' and '.join(event.models)}: {size(event.total)}{have}")
    elif isinstance(event, Retrying):
        say(f"the connection broke ({event.reason}): trying again in {event.seconds:g} s")
    elif isinstance(event, Pulled):
        output.text(f"{event.folder}\n")


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if key == "folder" else value for key, value in record.items()}


def _ids(name: str) -> tuple[str, ...]:
    """The ids on the hub behind a pair's name; an id stands for itself."""
    return (name,) if "/" in name else find(name, pairs()).models


def _remove(options: argparse.Namespace) -> int:
    from ..models.hubcache import cached_models, remove

    sizes = {model.name: model.size for model in cached_models()}
    names = list(dict.fromkeys(id for name in options.names for id in _doomed(name, set(sizes))))
    absent = [name for name in names if name not in sizes]
    if absent:
        raise ModelNotFoundError(
            f"{', '.join(absent)}: not in the hub's cache: macspec models lists what is"
        )
    listed = ", ".join(f"{name} ({size(sizes[name])})" for name in names)
    if not options.yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadOptionError(f"this would delete {listed}: add --yes")
        say(f"delete {listed} from the hub's cache, for other programs too? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 1
    freed = remove(names)
    say(f"{size(freed)} freed")
    return 0


def _doomed(name: str, here: set[str]) -> tuple[str, ...]:
    """The ids to delete for a name: of a pair what is here, but no draft that another one needs."""
    if "/" in name:
        return (name,)
    known = pairs()
    doomed = find(name, known)
    others = {it.draft for it in known if it.target in here and it.target != doomed.target}
    return tuple(id for id in doomed.models if id in here and id not in others) or doomed.models


def _quantize(options: argparse.Namespace) -> int:
    from ..models.conversion import quantize

    made = quantize(
        options.source,
        options.destination,
        bits=options.bits,
        draft=options.role == "draft",
        group=options.group_size,
        trust_remote_code=options.run_code,
    )
    Output().text(f"{made}\n")
    return 0


def _convert(options: argparse.Namespace) -> int:
    from ..models.conversion import convert

    made = convert(
        options.source,
        options.destination,
        dtype=options.dtype,
        trust_remote_code=options.run_code,
    )
    Output().text(f"{made}\n")
    return 0
