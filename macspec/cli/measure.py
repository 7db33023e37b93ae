"""``macspec bench``: measuring a pair."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..bench import document, sweeps
from ..bench.arms import ArmFactory
from ..bench.redact import redacted
from ..bench.run import Experiment
from ..bench.serverarm import Started
from ..device import prepare
from ..metal.dispatch import kernels_for
from ..models import Pair, load_pair
from ..power import Meter, awake, choose, remembered_idle
from ..terminal import Output, interruptible, say, status_of
from . import benchchoice
from .benchprogress import MeasureBar
from .benchreport import Files, told

BUSY = 0.7
"""Load before a measurement from which on it is worth a warning."""


def measure(options: argparse.Namespace) -> int:
    """Measure, report, and return the exit status."""
    began = time.perf_counter()
    benchchoice.refuse(options)
    files = Files(benchchoice.place(options.out), plot=options.plot)
    load = document.load_average()
    prepare()
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        beyond=options.prompts is not None and benchchoice.forces(options),
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
    )
    for notice in (*pair.notices, *([pair.draft_off] if pair.draft_off else [])):
        say(notice)
    if load is not None and load[0] > BUSY:
        say(f"the machine is busy (load {load[0]:.1f}): other programs' work will be in the times")
    run = _Run(options, pair, began)
    try:
        run.measure()
    finally:
        if run.anything:
            found = run.document(load)
            if options.json:
                Output().json(found)
            else:
                Output().text(told(found))
            for line in files.write(found):
                say(line)
        elif run.status:
            say("nothing was measured yet")
    return run.status


class _Run:
    """A measurement as its options want it. Whatever ends it, ``document`` has what there is."""

    def __init__(self, options: argparse.Namespace, pair: Pair, began: float) -> None:
        self._options, self._pair = options, pair
        self._kernels = kernels_for(pair, options.kernels)
        self._sweep = None if options.sweep is None else sweeps.sweep_of(options.sweep, pair)
        self._tasks = benchchoice.tasks(options, pair, self._sweep)
        self._experiment: Experiment | None = None
        self._profile: dict[str, Any] | None = None
        self._no_joules: str | None = None
        self._began = began
        self.status = 0

    @property
    def anything(self) -> bool:
        """Whether there is a reply to report on."""
        return self._experiment is not None and self._experiment.anything

    def measure(self) -> None:
        """Measure, until it is done or the user has enough."""
        options, bar = self._options, MeasureBar()
        with ExitStack() as held:
            server = benchchoice.server(options)
            meter = held.enter_context(_metered(options.settings.power.source))
            try:
                held.enter_context(interruptible())
                held.enter_context(awake(options.settings.power.keep_awake))
                if server is not None and options.server_command:
                    say(f"starting {options.server_command}")
                    command = shlex.split(options.server_command)
                    held.enter_context(Started(command, server))
                workshop = ArmFactory(
                    self._pair,
                    options.kv_bits,
                    self._kernels,
                    server=benchchoice.server_arm(server),
                )
                self._experiment = Experiment(
                    self._pair,
                    self._tasks,
                    benchchoice.arms(options, self._pair, self._sweep),
                    benchchoice.protocol(options),
                    baseline=benchchoice.baseline(options, self._sweep),
                    kv_bits=options.kv_bits,
                    kernels=self._kernels,
                    most=benchchoice.longest(options),
                    workshop=workshop,
                    meter=meter,
                    progress=bar.show,
                    began=self._began,
                )
                _tell_left_out(self._experiment.left_out)
                self._experiment.run()
                if options.profile:
                    self._profile = self._experiment.profile()
            except KeyboardInterrupt as interrupt:
                self.status = status_of(interrupt)
            finally:
                bar.end()
                self._no_joules = meter.reason

    def document(self, load: list[float] | None) -> dict[str, Any]:
        """The report."""
        assert self._experiment is not None
        outcome = self._experiment.outcome()
        more: dict[str, Any] = {}
        if self._sweep is not None:
            lengths = {it.id: len(it.ids) for it in outcome.questions}
            more["sweep"] = sweeps.entry(self._sweep, outcome.cells, outcome.samples, lengths)
        if self._options.aa is not None:
            repeats = outcome.protocol.repeats // sweeps.RUNS
            found = sweeps.held(outcome.samples, self._options.aa, repeats)
            more["aa"] = [it.as_dict() for it in found]
        if self._profile is not None:
            more["profile"] = self._profile
        return document.document(
            outcome,
            ["macspec", *sys.argv[1:]],
            kernels=self._kernels,
            kv_bits=self._options.kv_bits,
            load=load,
            energy=self._no_joules,
            mask=redacted if self._options.with_text else None,
            **more,
        )


@contextmanager
def _metered(source: str) -> Iterator[Meter]:
    meter = Meter(lambda: choose(source), idle=remembered_idle())
    meter.start()
    try:
        yield meter
    finally:
        meter.stop()


def _tell_left_out(count: int) -> None:
    if count:
        tasks = "prompt does" if count == 1 else "prompts do"
        are = "is" if count == 1 else "are"
        say(f"{count} {tasks} not fit into the context with the reply, and {are} left out")
