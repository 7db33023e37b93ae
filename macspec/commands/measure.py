"""``macspec bench``: measuring a pair."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from ..bench import record, setup
from ..bench.arm import Arm
from ..bench.armname import Workshop
from ..bench.experiment import Experiment, usual_arms
from ..bench.loopback import Address
from ..bench.promptfile import from_file
from ..bench.protocol import Protocol
from ..bench.replay import replayed
from ..bench.scrub import scrubbed
from ..bench.server import Server
from ..bench.serverarm import ServerArm
from ..bench.task import Task
from ..bench.workloads import QUICK, Count, shipped
from ..config import data_folder
from ..device import prepare
from ..errors import BadOptionError
from ..kernels import Kernels, kernels_for
from ..models import Pair, load_pair
from ..models.template import Template
from ..power import Meter, awake, choose, remembered_idle
from ..sampling import Sampling
from ..store import Store, store_path
from .benchprogress import MeasureBar
from .benchreport import Files, told
from .interrupt import interruptible, status_of
from .output import Output, say

TEMPERATURES = (0.0, 0.7, 1.0)
QUICK_TEMPERATURES = (0.0, 0.7)

REPEATS = 5
QUICK_REPEATS = 3

QUICK_TASKS = 2
"""Of each workload."""

QUICK_TOKENS = 48
"""Longest reply of a short run."""

SERVER = "server"


def measure(options: argparse.Namespace) -> int:
    """Measure, report, and return the exit status."""
    _refuse(options)
    files = Files(_place(options.out), plot=options.plot)
    load = setup.load()
    prepare()
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
    )
    for notice in (*pair.notices, *([pair.draft_off] if pair.draft_off else [])):
        say(notice)
    kernels = kernels_for(pair, options.kernels)
    tasks = _tasks(options, pair)
    bar = MeasureBar()
    status = 0
    with ExitStack() as held:
        workshop = Workshop(pair, options.kv_bits, kernels, server=_serving(options, held))
        meter = held.enter_context(_metered(options.settings.power.source))
        experiment = Experiment(
            pair,
            tasks,
            _arms(options, pair),
            _protocol(options),
            baseline=options.baseline,
            kv_bits=options.kv_bits,
            kernels=kernels,
            most=_longest(options),
            workshop=workshop,
            meter=meter,
            progress=bar.show,
        )
        _warn(experiment.left_out, load)
        try:
            with interruptible(), awake(options.settings.power.keep_awake):
                experiment.run()
        except KeyboardInterrupt as interrupt:
            status = status_of(interrupt)
        finally:
            bar.end()
        outcome = experiment.outcome()
        found = record.document(
            outcome,
            ["macspec", *sys.argv[1:]],
            kernels=kernels,
            kv_bits=options.kv_bits,
            load=load,
            energy=meter.reason,
            mask=scrubbed if options.with_text else None,
        )
    output = Output()
    if options.json:
        output.json(found)
    else:
        output.text(told(found))
    for line in files.write(found):
        say(line)
    return status


def _refuse(options: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    given = [
        flag
        for flag, value in (
            ("--arms", options.arms),
            ("--sweep", options.sweep),
            ("--aa", options.aa),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise BadOptionError(f"{' and '.join(given)} do not go together: each names the arms")
    if options.server is None and (options.server_model or options.server_command):
        raise BadOptionError("--server-model and --server-command need --server ADDRESS")


def _place(out: str | None) -> Path:
    """The JSON file to be written."""
    if out is None:
        stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
        return data_folder() / "bench" / stamp / "report.json"
    path = Path(out).expanduser()
    return path if path.suffix == ".json" else path / "report.json"


def _tasks(options: argparse.Namespace, pair: Pair) -> list[Task]:
    template = Template(pair)

    def count(messages: Any) -> int:
        return len(template.tokens(messages))

    if options.prompts is not None:
        tasks = from_file(Path(options.prompts), force=options.force, max_tokens=options.max_tokens)
        return _most_of_each(tasks, options.tasks)
    if options.replay:
        return _own_chats(options, pair, count)
    chosen = options.workloads or (QUICK if options.quick else None)
    most = options.tasks or (QUICK_TASKS if options.quick else None)
    return shipped(chosen, count=count, room=pair.context, force=options.force, most=most)


def _own_chats(options: argparse.Namespace, pair: Pair, count: Count) -> list[Task]:
    store = Store(store_path())
    try:
        settings = {} if options.tasks is None else {"most": options.tasks}
        found = replayed(store, count=count, room=pair.context, **settings)
    finally:
        store.close()
    return found.tasks


def _most_of_each(tasks: list[Task], most: int | None) -> list[Task]:
    if most is None:
        return tasks
    taken: dict[str, int] = {}
    kept = []
    for task in tasks:
        taken[task.workload] = taken.get(task.workload, 0) + 1
        if taken[task.workload] <= most:
            kept.append(task)
    return kept


def _arms(options: argparse.Namespace, pair: Pair) -> list[str]:
    arms = options.arms or usual_arms(pair, quick=options.quick)
    return [*arms, *([SERVER] if options.server and SERVER not in arms else [])]


def _protocol(options: argparse.Namespace) -> Protocol:
    usual = QUICK_TEMPERATURES if options.quick else TEMPERATURES
    return Protocol(
        temperatures=tuple(options.temperatures or usual),
        repeats=options.repeats or (QUICK_REPEATS if options.quick else REPEATS),
        seed=options.seed,
        ends=not options.ignore_end,
        cool_down=options.cool_down,
        sampling=Sampling(),
    )


def _longest(options: argparse.Namespace) -> int | None:
    quick = QUICK_TOKENS if options.quick else None
    return quick if options.max_tokens is None else int(options.max_tokens)


def _serving(options: argparse.Namespace, held: ExitStack) -> Any:
    """Makes the arm of a server, which is started before it if there is a command."""

    def make(name: str, place: str) -> Arm:
        address = Address.parse(place or options.server)
        server = Server(address, options.server_model)
        if options.server_command:
            raise BadOptionError("not here")
        return ServerArm(name, server)

    return make


@contextmanager
def _metered(source: str) -> Iterator[Meter]:
    meter = Meter(lambda: choose(source), idle=remembered_idle())
    meter.start()
    try:
        yield meter
    finally:
        meter.stop()


def _warn(left_out: int, load: list[float] | None) -> None:
    if left_out:
        tasks = "task does" if left_out == 1 else "tasks do"
        say(
            f"{left_out} {tasks} not fit into the context and {'is' if left_out == 1 else 'are'} "
            "left out"
        )
    if load is not None and load[0] > 0.5:
        say(f"the machine is busy (load {load[0]:.1f}): other programs' work will be in the times")


__all__ = ["Kernels", "measure"]
