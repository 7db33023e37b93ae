"""What ``macspec bench`` measures, from its options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..bench.arms import SERVER, ArmName
from ..bench.promptfile import from_file
from ..bench.questions import Arm
from ..bench.run import Protocol, usual_arms
from ..bench.server import Address, Server
from ..bench.serverarm import ServerArm
from ..bench.sweeps import AGAIN, Sweep, protocol_of
from ..bench.tasks import QUICK, Task, replayed, shipped
from ..config import data_folder
from ..errors import BadOptionError
from ..models import Pair
from ..models.template import Template
from ..store import Store, store_path

TEMPERATURES = (0.0, 0.7, 1.0)
SHORT_TEMPERATURES = (0.0, 0.7)

REPEATS = 5
SHORT_REPEATS = 3

SHORT_TASKS = 2
"""Of each workload, in a short run."""

QUICK_TOKENS = 48
"""Longest reply of the shortest run."""

QUICK_TASKS = {"chat": 3, "maths": 3, "code-edit": 1}
"""Of each workload, in the shortest run: enough that the target writes itself for an interval."""

QUICK_MINUTES = 1.4
"""After which the shortest run begins no further prompt: two, less the report's share."""


def refuse(options: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        BadOptionError: something does not.
    """
    naming = {"--arms": options.arms, "--sweep": options.sweep, "--aa": options.aa}
    given = [flag for flag, value in naming.items() if value is not None]
    if len(given) > 1:
        raise BadOptionError(f"{' and '.join(given)} do not go together: each names the arms")
    if options.baseline is not None and (options.sweep or options.aa):
        raise BadOptionError(f"--baseline does not go with {given[0]}, which has one of its own")
    if options.server is None:
        if options.server_model or options.server_command:
            raise BadOptionError("--server-model and --server-command need --server ADDRESS")
    elif options.sweep or options.aa:
        raise BadOptionError(f"--server does not go with {given[0]}")
    else:
        Address.parse(options.server)
    for text in [*(options.arms or ()), *([options.aa] if options.aa else [])]:
        ArmName.parse(text)
    if options.aa is not None and "#" in options.aa:
        raise BadOptionError(f"--aa {options.aa}: name the arm without a number")


def place(out: str | None) -> Path:
    """The JSON file to be written."""
    if out is None:
        stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
        return data_folder() / "bench" / stamp / "report.json"
    path = Path(out).expanduser()
    return path if path.suffix == ".json" else path / "report.json"


def tasks(options: argparse.Namespace, pair: Pair, sweep: Sweep | None) -> list[Task]:
    """What is asked.

    Raises:
        BadOptionError: a workload or file that is none.
    """
    template = Template(pair)
    force = forces(options)

    def count(messages: Any) -> int:
        return len(template.tokens(messages))

    if options.prompts is None and not pair.target.tokenizer.has_chat_template:
        raise BadOptionError(
            f"{pair.target.name} has no chat template: give texts that it can continue, with "
            "--prompts FILE in HumanEval's form"
        )
    if options.prompts is not None:
        path = Path(options.prompts).expanduser()
        found = from_file(path, force=force, max_tokens=options.longest)
        return _most_of_each(found, options.tasks)
    if options.replay:
        return _own_chats(options, pair, count)
    chosen: Sequence[str] | None = options.workloads
    most: int | None = options.tasks
    if chosen is None and sweep is not None and sweep.workloads is not None:
        chosen = sweep.workloads
    if chosen is None and options.quick and options.tasks is None:
        chosen, most = [*QUICK_TASKS], max(QUICK_TASKS.values())
    else:
        chosen = QUICK if chosen is None and _short(options) else chosen
        most = most or (SHORT_TASKS if _short(options) else None)
    found = shipped(chosen, count=count, room=pair.context, force=force, most=most)
    if chosen == [*QUICK_TASKS]:
        found = [task for name in chosen for task in _of(found, name)[: QUICK_TASKS[name]]]
    if not found:
        raise BadOptionError(
            f"no prompt of {', '.join(chosen or ())} fits the context of {pair.context} positions"
        )
    return found


def forces(options: argparse.Namespace) -> bool:
    """Whether replies are decoded along recorded answers."""
    # The built-in pair cannot write what some tasks ask for; a larger one can.
    return options.target is None if options.force is None else bool(options.force)


def arms(options: argparse.Namespace, pair: Pair, sweep: Sweep | None) -> list[str]:
    """The names of the arms."""
    if sweep is not None:
        return sweep.arms
    if options.aa is not None:
        return [options.aa, f"{options.aa}{AGAIN}"]
    names = options.arms or usual_arms(pair, quick=options.quick)
    return [*names, *([SERVER] if options.server and SERVER not in names else [])]


def baseline(options: argparse.Namespace, sweep: Sweep | None) -> str | None:
    """The name of the arm whose speed is 1, if it is not the usual one."""
    if sweep is not None:
        return sweep.baseline
    given: str | None = options.aa or options.baseline
    return given


def protocol(options: argparse.Namespace) -> Protocol:
    """How it is measured."""
    short = _short(options)
    usual = SHORT_TEMPERATURES if short else TEMPERATURES
    found = Protocol(
        temperatures=tuple(options.temperatures or usual),
        repeats=options.repeats or (SHORT_REPEATS if short else REPEATS),
        seed=options.seed,
        ends=not options.ignore_end,
        cool_down=options.cool_down,
        minutes=QUICK_MINUTES if options.quick and not options.minutes else options.minutes,
    )
    return found if options.aa is None else protocol_of(found)


def longest(options: argparse.Namespace) -> int | None:
    """The longest reply, if it is to be shorter than the tasks' own."""
    quick = QUICK_TOKENS if options.quick else None
    return quick if options.longest is None else int(options.longest)


def server(options: argparse.Namespace) -> Server | None:
    """The server that is measured too.

    Raises:
        BadOptionError: its address is none of this machine.
        ServerError: it should be there, and is not.
    """
    if options.server is None:
        return None
    found = Server(Address.parse(options.server), options.server_model)
    if options.server_command is None:
        found.models()
    return found


def server_arm(found: Server | None) -> Callable[[str], Arm] | None:
    """Makes its arm."""
    return None if found is None else lambda name: ServerArm(name, found)


def _short(options: argparse.Namespace) -> bool:
    """Whether there is so much to measure that a few prompts must do."""
    return bool(options.quick or options.sweep or options.aa)


def _own_chats(options: argparse.Namespace, pair: Pair, count: Callable[[Any], int]) -> list[Task]:
    store = Store(store_path())
    try:
        if options.tasks is None:
            return replayed(store, count=count, room=pair.context).tasks
        return replayed(store, count=count, room=pair.context, most=options.tasks).tasks
    finally:
        store.close()


def _of(found: Sequence[Task], workload: str) -> list[Task]:
    return [task for task in found if task.workload == workload]


def _most_of_each(found: list[Task], most: int | None) -> list[Task]:
    if most is None:
        return found
    taken: dict[str, int] = {}
    kept = []
    for task in found:
        taken[task.workload] = taken.get(task.workload, 0) + 1
        if taken[task.workload] <= most:
            kept.append(task)
    return kept
