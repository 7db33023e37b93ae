"""What ``macspec bench`` runs: measuring, comparing, Spec-Bench, simulating."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..bench import compare, document, report, sweeps
from ..bench import specbench as spec
from ..bench.arms import ArmFactory
from ..bench.options import BenchOptions
from ..bench.promptfile import from_file
from ..bench.published import published
from ..bench.redact import redacted
from ..bench.run import Run, Step, prepare
from ..bench.serverarm import started
from ..bench.simulate import Result, as_record, simulation, simulation_notes, texts
from ..bench.simulate import simulate as simulated
from ..bench.spectables import blocks
from ..bench.traces import load as load_traces
from ..bench.traces import shipped
from ..device import prepare as prepare_device
from ..errors import BadOptionError
from ..metal.start import kernels_for
from ..models import Pair, load_pair
from ..plaintext import one_line
from ..power import Meter, awake, choose, remembered_idle
from ..terminal import INTERRUPTED, Output, ProgressLine, interruptible, say, status_of
from .checking import shown_check

BUSY = 0.7
"""Load before a measurement that is worth a warning."""

NOTHING = "nothing was measured yet"


def measure(given: argparse.Namespace) -> int:
    """Measure, report, and return the exit status; or compare two reports."""
    if given.compare is not None:
        one, other = (document.load(Path(name).expanduser()) for name in given.compare)
        _show(compare.blocks(one, other))
        return 0
    began = time.perf_counter()
    options = BenchOptions(given)
    _check_writable(options.path)
    load = document.load_average()
    pair = _pair(given, beyond=options.prompts is not None and options.force)
    if load is not None and load[0] > BUSY:
        say(f"the machine is busy (load {load[0]:.1f}): other programs will affect the times")
    with shown_check() as show:
        kernels = kernels_for(pair, given.kernels, show, rest=True)
    swept = None if given.sweep is None else sweeps.SWEEPS[given.sweep](pair)
    tasks = options.tasks_for(pair, swept)
    server = options.server_to_measure()
    meter = Meter(lambda: choose(given.settings.power.source), idle=remembered_idle())
    more: dict[str, Any] = {}

    def measured(stack: ExitStack, bar: MeasureBar) -> Iterator[Run]:
        meter.start()
        stack.callback(meter.stop)
        if server is not None and given.server_command:
            say(f"starting {given.server_command}")
            stack.enter_context(started(shlex.split(given.server_command), server))
        run = prepare(
            pair,
            tasks,
            options.arms_for(pair, swept),
            options.protocol,
            baseline=options.baseline,
            factory=ArmFactory(pair, given.kv_bits, kernels, server=server),
            longest=options.longest,
            meter=meter,
            progress=bar.show,
            began=began,
        )
        if count := run.left_out:
            prompts, are = ("prompt does", "is") if count == 1 else ("prompts do", "are")
            say(f"{count} {prompts} not fit the context together with the reply and {are} left out")
        yield run
        for _ in run.measure():
            pass
        if given.profile:
            more["profile"] = run.profile()

    def keep(run: Run) -> None:
        if run.samples:
            found = run.results()
            if swept is not None:
                more["sweep"] = sweeps.entry(swept, found[0], run)
            if given.null_test is not None:
                more["aa"] = [*sweeps.null_test(run.samples, given.null_test, options.repeats)]
            record = document.document(
                run,
                found,
                _command(),
                kernels=kernels,
                load=load,
                energy=meter.reason,
                mask=redacted if given.with_text else None,
                **more,
            )
            _report(record, options)
        else:
            say(NOTHING)

    return _go(given, measured, keep)


def specbench(given: argparse.Namespace) -> int:
    """Measure what is missing, show what there is, and return the exit status."""
    began = time.perf_counter()
    preset = spec.Preset(**{it.name: getattr(given, it.name) for it in fields(spec.Preset)})
    tasks = from_file(Path(given.file).expanduser(), max_tokens=preset.max_tokens)
    pair = _pair(given, require_draft=True)
    with shown_check() as show:
        kernels = kernels_for(pair, given.kernels, show, rest=True)
    questions = spec.chosen(tasks, pair, preset)
    path = Path(given.out).expanduser()
    # The built-in pair drafts with its head by default, which mlx-lm's speculation cannot.
    usual = given.target is None and given.draft is None
    ours = load_pair(context=pair.context, beside=pair) if usual else pair
    file = spec.SpecFile(path, pair, kernels, preset, questions, _command(), ours)

    def measured(stack: ExitStack, bar: MeasureBar) -> Iterator[Run]:
        run = file.run(minutes=given.minutes, progress=bar.show, began=began)
        yield run
        for _ in run.measure():
            file.save_at_times(run)

    def keep(run: Run) -> None:
        file.save(run)
        _show(blocks(spec.read(path)))
        left = file.left(run)
        say(f"report: {path}, {f'{left} questions are left: run it again' if left else 'complete'}")

    return _go(given, measured, keep)


def _go(
    given: argparse.Namespace,
    measured: Callable[[ExitStack, MeasureBar], Iterator[Run]],
    keep: Callable[[Run], None],
) -> int:
    """Measure and return the exit status; whatever ends the run, what it measured is kept."""
    run, status, bar = None, 0, MeasureBar()
    try:
        with ExitStack() as stack:
            stack.callback(bar.end)
            try:
                stack.enter_context(interruptible())
                stack.enter_context(awake(given.settings.power.keep_awake))
                for begun in measured(stack, bar):
                    run = begun
            except KeyboardInterrupt as interrupt:
                status = status_of(interrupt)
    finally:
        if run is not None:
            keep(run)
        elif status:
            say(NOTHING)
    return status


def simulate(given: argparse.Namespace) -> int:
    """Play traces back, and return the exit status."""
    output = Output()
    curves = [curve for curve in published() if given.curve in (None, curve.name)]
    if not curves:
        known = ", ".join(curve.name for curve in published())
        raise BadOptionError(f"there is no curve {given.curve!r}; there are {known}")
    traces = shipped() if given.traces is None else load_traces(Path(given.traces))
    everything: list[Result] = []
    try:
        with interruptible():
            for curve in curves:
                results = []
                for result in simulated(curve, [*traces, *texts(curve)]):
                    results.append(result)
                    if given.json:
                        output.json({"event": "simulated", **as_record(result)})
                if not given.json:
                    output.text(simulation(curve, results))
                everything += results
            if not given.json:
                output.text(simulation_notes(traces, everything))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


class MeasureBar:
    """How far a measurement is, and how long it will take."""

    WIDTH = 24

    def __init__(self, unit: str = "replies") -> None:
        self._unit = unit
        self._progress = ProgressLine()

    def show(self, step: Step) -> None:
        """Show a step, over the last one."""
        share = step.done / step.total if step.total else 0.0
        self._progress.show(lambda width: self.line(step, width), share)

    def end(self) -> None:
        """Remove the line."""
        self._progress.end(keep=False)

    def line(self, step: Step, width: int) -> str:
        """A step in one line of at most so many characters."""
        if not step.total or not step.done:
            return one_line(step.what)[:width]
        share = step.done / step.total
        full = round(share * self.WIDTH)
        bar = "━" * full + "─" * (self.WIDTH - full)
        left = ""
        if step.seconds_left is not None:
            minutes, seconds = divmod(round(step.seconds_left), 60)
            left = f"  {minutes}:{seconds:02} left"
        counted = f"{share:4.0%}  {step.done} of {step.total} {self._unit}{left}"
        return f"{bar} {counted}  {one_line(step.what)}"[:width]


def _pair(given: argparse.Namespace, **more: Any) -> Pair:
    """The pair that the options name."""
    prepare_device()
    if "require_draft" not in more:
        more["kv_bits"] = given.kv_bits
    pair = load_pair(
        given.target,
        given.draft,
        context=given.context,
        trust_remote_code=given.trust_remote_code,
        **more,
    )
    for notice in (*pair.notices, *([pair.draft_off] if pair.draft_off else [])):
        say(notice)
    return pair


def _command() -> list[str]:
    return ["macspec", *sys.argv[1:]]


def _report(found: Mapping[str, Any], options: BenchOptions) -> None:
    """Print a report and write its files."""
    if options.given.json:
        Output().json(found)
    else:
        _show(report.blocks(found))
    path = options.path
    document.write(path, json.dumps(found, indent=1) + "\n")
    say(f"report: {path}")
    document.write(path.with_suffix(".md"), report.page(found))
    say(f"tables: {path.with_suffix('.md')}")
    if not options.given.plot:
        return
    try:
        from ..bench.plots import draw
    except ImportError:
        say("no pictures without matplotlib: pip install 'macspec[plots]' adds it")
        return
    for picture in draw(found, path.parent):
        say(f"picture: {picture}")


def _show(blocks: Iterable[report.Block]) -> None:
    """Print a report, as wide as the terminal is."""
    output = Output()
    output.text(report.terminal(blocks, output.width))


def _check_writable(path: Path) -> None:
    """Refuse a place that cannot be written before anything is measured."""
    there = next(it for it in path.parents if it.exists())
    if path.is_dir() or not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise BadOptionError(f"cannot write {path}: choose another place with --out")
