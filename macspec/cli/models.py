"""``macspec models``: list, fetch, plan, delete, quantize and convert models."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config.effective import load
from ..config.schema import BUILT_IN
from ..errors import BadOptionError, ModelNotFoundError
from ..models.catalog import Entry, advised_head, catalogue, find, licence, non_commercial
from ..models.progress import DownloadEvent, Listed, Progress, Pulled, Retrying, size
from ..models.sidecars import heads_folder, kept_heads
from ..plaintext import one_line
from ..terminal import Output, ProgressLine, interruptible, say
from .options import Parser, add_actions, add_flag, add_setting

DESCRIPTION = """\
Show this machine's memory, the models in the Hugging Face cache, what they
need, which can draft for which, and pairs that can be fetched.
"""

PULL = """\
Fetch a pair from the catalogue, or any model from the Hugging Face hub. A
broken download resumes, now or next time; every file is checked against the
hub's checksum. Nothing is fetched that does not fit on the disk.

With --head, fetch the head that drafts for the target instead: the one that
the catalogue names, or else the one inside the repository, of which only the
head's tensors are fetched. Give the name that is printed to --draft.
"""

REMOVE = "Delete models from the Hugging Face cache, which other programs share."

PLAN = """\
Show what a pair needs: weights, caches at a context, and the buffers of the
largest pass, against the memory this machine gives to models. A Mac gives its
GPU two thirds of up to 32 GB, and three quarters of more; the plan says how to
raise that if it would help. Exit status 0: it fits; 1: it does not.
"""

QUANTIZE = """\
Quantize a model with mlx-lm: 4 bits a weight for a target, 8 for a draft
model. A draft model is small, so more bits cost little time and memory, while
every guess that coarse weights spoil costs part of a pass of the target.

A head is quantized to 8 bits, its norms and small matrices not at all. The
one that a target brings along, which mlx-lm drops, is kept beside it so.
"""

CONVERT = "Convert a model to the format that mlx-lm loads, in full precision."

BITS = {"target": 4, "draft": 8, "head": 8}
"""Bits of a weight, by what the model will be used as."""


def add_options(it: Parser) -> None:
    it.usage = "macspec models [ACTION] [options]"
    it.description, it.epilog = DESCRIPTION, "example:\n  macspec models\n"
    it.set_defaults(action="list", json=False)
    add_flag(it, "--json", "print one JSON object a line")
    action = add_actions(it)
    pair = "a pair's name, or a Hugging Face id"
    it = action("pull", "PAIR... [options]", "fetch a pair or a model", "qwen3-8b", PULL)
    it.add_argument("names", metavar="PAIR", nargs="+", help=f"{pair} (id@revision pins a version)")
    add_flag(it, "--json", "print one JSON event a line")
    head = "fetch the head that drafts for the target, from a checkpoint just its tensors"
    add_flag(it, "--head", head)
    add_flag(it, "--yes", "do not ask before a download with a non-commercial licence")

    it = action("rm", "PAIR... [options]", "delete models", "qwen3-8b", REMOVE)
    it.add_argument("names", metavar="PAIR", nargs="+", help=pair)
    add_flag(it, "--yes", "do not ask")

    example = "qwen3-8b --context 16384"
    it = action("plan", "TARGET [options]", "show the memory a pair needs", example, PLAN)
    it.add_argument("target", metavar="TARGET", help="a pair's name, a folder, an id or built-in")
    it.add_argument("--draft", metavar="MODEL", help="a folder or an id (default: the pair's)")
    add_setting(it, "models.context")
    add_setting(it, "models.kv_bits")
    add_setting(it, "models.hosts")

    example = "./my-model ./my-model-4bit"
    it = action("quantize", "SOURCE FOLDER [options]", "quantize a model", example, QUANTIZE)
    it.set_defaults(dtype=None)
    _add_places(it)
    it.add_argument(
        "--bits",
        metavar="N",
        type=int,
        choices=(2, 3, 4, 5, 6, 8),
        help="bits a weight: 2, 3, 4, 5, 6 or 8 (default: 4; for a draft model or a head 8)",
    )
    it.add_argument(
        "--for",
        dest="role",
        choices=("target", "draft", "head"),
        default="target",
        help="what the model will be used as (default: target)",
    )
    it.add_argument(
        "--group-size",
        metavar="N",
        type=int,
        choices=(32, 64, 128),
        default=64,
        help="weights that share a scale: 32, 64 or 128 (default: 64)",
    )

    about, example = "convert a model to MLX's format", "owner/name ./my-model"
    it = action("convert", "SOURCE FOLDER [options]", about, example, CONVERT)
    it.set_defaults(bits=None, role=None, group_size=64)
    _add_places(it)
    it.add_argument(
        "--dtype",
        choices=("float16", "bfloat16", "float32"),
        help="precision of the weights (default: unchanged)",
    )


def _add_places(parser: Any) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a folder or a Hugging Face id")
    parser.add_argument("destination", metavar="FOLDER", help="the folder to create")
    add_flag(parser, "--trust-remote-code", "run Python code that comes with the model")


def models(options: argparse.Namespace) -> int:
    """Do what ``options.action`` says and return the exit status."""
    actions = {
        "list": _list,
        "pull": _pull,
        "rm": _remove,
        "plan": _plan,
        "quantize": _convert,
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
    from .modellist import show_plan

    entry, target = None, options.target
    if target != BUILT_IN and "/" not in target and not os.path.isdir(target):
        entry = find(target, pairs())
        options.target, options.draft = entry.target, options.draft or entry.draft
    return show_plan(options, entry)


def _pull(options: argparse.Namespace) -> int:
    from ..models.download import pull
    from ..models.headpull import pull_head

    names = [id for name in options.names for id in _ids(name)]
    events: Iterator[DownloadEvent] = pull(names)
    if options.head:
        heads = dict.fromkeys(map(_head_of, options.names))
        events = (event for head in heads for event in pull_head(head))
    output, bar = Output(), ProgressLine()
    try:
        with interruptible():
            for event in events:
                if isinstance(event, Listed) and not _licensed(options, event, output):
                    return 1
                if options.json:
                    kind = type(event).__name__.lower()
                    output.json({"event": kind, **asdict(event)})
                elif isinstance(event, Progress):
                    show_download(bar, event)
                else:
                    bar.end()
                    _tell(event, output)
                    if options.head and isinstance(event, Pulled):
                        say(f"draft with it: --draft {_draft_name(event)}")
    finally:
        bar.end()
    return 0


def _licensed(options: argparse.Namespace, event: Listed, output: Output) -> bool:
    """Show the licences of what is about to be downloaded; whether the user agrees to them."""
    known = pairs()
    licences = {
        name: licence(name, known, hub)
        for name, hub in zip(event.models, event.licences, strict=True)
    }
    for name, text in licences.items():
        if options.json:
            output.json({"event": "licence", "model": name, "licence": text})
        else:
            say(f"{name}: licence: {text}")
    limited = [name for name, text in licences.items() if non_commercial(text)]
    return not limited or _agreed(options, f"download {' and '.join(limited)}, non-commercial")


def _head_of(name: str) -> str:
    """The repository of the head for a pair's name, or a target's id; a checkpoint may bring its
    own."""
    known = pairs()
    target = name if "/" in name else find(name, known).target
    head = advised_head(target, known)
    return target if head is None else head[1]


def _draft_name(event: Pulled) -> str:
    """What to give as the draft model: a folder of macspec's own, or the repository."""
    own = heads_folder() in Path(event.folder).parents
    return shlex.quote(event.folder) if own else event.model


def _tell(event: Listed | Retrying | Pulled, output: Output) -> None:
    if isinstance(event, Listed):
        have = f", {size(event.present)} already here" if event.present else ""
        say(f"{' and '.join(event.models)}: {size(event.total)}{have}")
    elif isinstance(event, Retrying):
        say(f"the connection broke ({event.reason}): retrying in {event.seconds:g} s")
    elif isinstance(event, Pulled):
        output.text(f"{event.folder}\n")


def _ids(name: str) -> tuple[str, ...]:
    """The Hugging Face ids behind a pair's name; an id stands for itself."""
    return (name,) if "/" in name else find(name, pairs()).models


def _remove(options: argparse.Namespace) -> int:
    from ..models.hubcache import cached_models, remove

    sizes = {model.name: model.size for model in cached_models()}
    for head in kept_heads():
        sizes[str(head)] = sum(file.stat().st_size for file in head.iterdir())
    names = list(dict.fromkeys(id for name in options.names for id in _doomed(name, set(sizes))))
    absent = [name for name in names if name not in sizes]
    if absent:
        raise ModelNotFoundError(
            f"{', '.join(absent)}: not in the hub's cache; macspec models lists what is"
        )
    listed = ", ".join(f"{name} ({size(sizes[name])})" for name in names)
    if not _agreed(options, f"delete {listed} from the hub's cache, for other programs too"):
        return 1
    remove(names)
    say(f"{size(sum(sizes[name] for name in names))} freed")
    return 0


def _agreed(options: argparse.Namespace, what: str) -> bool:
    """Whether the user wants it, who is asked unless the options say so already."""
    if options.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadOptionError(f"this would {what}: add --yes")
    say(f"{what}? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _doomed(name: str, here: set[str]) -> tuple[str, ...]:
    """The ids to delete for a name: of a pair what is here, except a draft that another needs."""
    if "/" in name:
        return (name,)
    known = pairs()
    doomed = find(name, known)
    others = {it.draft for it in known if it.target in here and it.target != doomed.target}
    return tuple(id for id in doomed.models if id in here and id not in others) or doomed.models


def _convert(options: argparse.Namespace) -> int:
    from ..models.conversion import convert

    made = convert(
        options.source,
        options.destination,
        bits=options.bits or BITS.get(options.role),
        head_bits=options.bits or BITS["head"] if options.role else None,
        group=options.group_size,
        dtype=options.dtype,
        trust_remote_code=options.trust_remote_code,
    )
    Output().text(f"{made}\n")
    return 0


def show_download(line: ProgressLine, progress: Progress) -> None:
    share = progress.done / progress.total if progress.total else 1.0
    line.show(lambda width: _line(progress, share, width), share, progress.model)


def _line(progress: Progress, share: float, width: int) -> str:
    numbers = f"{share:4.0%}  {size(progress.done)} of {size(progress.total)}"
    if progress.rate > 0:
        left = round((progress.total - progress.done) / progress.rate)
        numbers += f"  {size(progress.rate)}/s  {left // 60}:{left % 60:02} left"
    room = max(width - len(numbers) - 2, 8)
    name = one_line(progress.model)
    name = name if len(name) <= room else f"…{name[-room + 1 :]}"
    return f"{name}  {numbers}"[:width]
