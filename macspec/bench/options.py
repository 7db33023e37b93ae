"""What ``macspec bench`` was asked to measure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from ..config.paths import data_folder
from ..errors import BadOptionError
from ..models import Pair
from ..models.template import Template
from ..prompt import Message
from ..store import Store, store_path
from .arms import SERVER, ArmName
from .promptfile import from_file
from .run import Protocol, usual_arms
from .server import Address, Server
from .sweeps import AGAIN, RUNS, Sweep
from .tasks import QUICK, REPLAYED, Task, most_of_each, replayed, shipped

SHORT = Protocol((0.0, 0.7), repeats=3)
"""Where there is so much to measure that a few prompts must do."""

SHORT_TASKS = 2
"""Of each workload, in a short run."""

QUICK_TOKENS = 48
"""Longest reply with --quick."""

QUICK_TASKS = {"chat": 3, "maths": 3, "code-edit": 1}
"""Of each workload, with --quick: enough written by the target itself for an interval."""

QUICK_MINUTES = 1.4
"""After which --quick begins no further prompt: two, less the report's share."""


class BenchOptions:
    """The command line, with --quick and other defaults resolved where they need no models.

    Raises:
        BadOptionError: some options do not go together, or name nothing that exists.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        _refuse(given)
        self.given = given
        self.short = bool(given.quick or given.sweep or given.null_test)
        self.prompts = None if given.prompts is None else Path(given.prompts).expanduser()
        self.longest = given.longest or (QUICK_TOKENS if given.quick else None)
        """Longest reply, if shorter than the tasks' own."""
        # The built-in pair cannot write what some tasks ask for; a larger one can.
        self.force = given.target is None if given.force is None else bool(given.force)
        """Whether replies are decoded along recorded answers."""
        self.baseline = given.null_test or given.baseline
        self.server = None if given.server is None else Address.parse(given.server)
        self.path = _path(given.out)
        """The JSON file to be written; other files go beside it."""
        usual = SHORT if self.short else Protocol()
        self.repeats = given.repeats or usual.repeats
        """Of a run of the null test, which has several."""
        self.protocol = Protocol(
            temperatures=tuple(given.temperatures or usual.temperatures),
            repeats=self.repeats * (RUNS if given.null_test else 1),
            seed=given.seed,
            ends=not given.ignore_end,
            cool_down=given.cool_down,
            minutes=given.minutes or (QUICK_MINUTES if given.quick else None),
        )

    def tasks_for(self, pair: Pair, sweep: Sweep | None) -> list[Task]:
        """What is asked.

        Raises:
            BadOptionError: a workload or file does not exist, or nothing fits.
        """
        given, template = self.given, Template(pair)

        def count(messages: Sequence[Message]) -> int:
            return len(template.tokens(messages))

        if self.prompts is None and not pair.target.tokenizer.has_chat_template:
            raise BadOptionError(
                f"{pair.target.name} has no chat template: give texts that it can continue, with "
                "--prompts FILE in HumanEval's form"
            )
        if self.prompts is not None:
            found = from_file(self.prompts, force=self.force, max_tokens=given.longest)
            return most_of_each(found, given.tasks)
        if given.replay:
            with closing(Store(store_path())) as store:
                most = given.tasks or REPLAYED
                return replayed(store, count=count, room=pair.context, most=most)
        chosen, limit = given.workloads, given.tasks or (SHORT_TASKS if self.short else None)
        if chosen is None and sweep is not None and sweep.workloads is not None:
            chosen = sweep.workloads
        elif chosen is None and given.quick and given.tasks is None:
            chosen = limit = QUICK_TASKS
        elif chosen is None and self.short:
            chosen = QUICK
        found = shipped(chosen, count=count, room=pair.context, force=self.force)
        if not found:
            raise BadOptionError(
                f"no prompt of {', '.join(chosen or ())} fits the context of {pair.context} "
                "positions"
            )
        return most_of_each(found, limit)

    def arms_for(self, pair: Pair, sweep: Sweep | None) -> list[str]:
        """The names of the arms."""
        if sweep is not None:
            return sweep.arms
        given = self.given
        if given.null_test is not None:
            return [given.null_test, f"{given.null_test}{AGAIN}"]
        names = list(given.arms or usual_arms(pair, quick=given.quick))
        return [*names, *([SERVER] if self.server and SERVER not in names else [])]

    def server_to_measure(self) -> Server | None:
        """The server that is measured too.

        Raises:
            ServerError: it should be running, and is not.
        """
        if self.server is None:
            return None
        found = Server(self.server, self.given.server_model)
        if self.given.server_command is None:
            found.models()
        return found


def _refuse(given: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    naming = {"--arms": given.arms, "--sweep": given.sweep, "--null-test": given.null_test}
    flags = [flag for flag, value in naming.items() if value is not None]
    if len(flags) > 1:
        raise BadOptionError(f"{' and '.join(flags)} do not go together: each names the arms")
    if given.baseline is not None and (given.sweep or given.null_test):
        raise BadOptionError(f"--baseline does not go with {flags[0]}, which has one of its own")
    if given.server is None:
        if given.server_model or given.server_command:
            raise BadOptionError("--server-model and --server-command need --server ADDRESS")
    elif given.sweep or given.null_test:
        raise BadOptionError(f"--server does not go with {flags[0]}")
    for text in [*(given.arms or ()), *([given.null_test] if given.null_test else [])]:
        ArmName.parse(text)
    if given.null_test is not None and "#" in given.null_test:
        raise BadOptionError(f"--null-test {given.null_test}: name the arm without a number")


def _path(out: str | None) -> Path:
    if out is None:
        stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
        return data_folder() / "bench" / stamp / "report.json"
    path = Path(out).expanduser()
    return path if path.suffix == ".json" else path / "report.json"
