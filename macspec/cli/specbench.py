"""``macspec bench specbench``: the six tasks of Spec-Bench, in as many runs as it takes."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..bench import spectable
from ..bench.promptfile import from_file
from ..bench.specbench import Plan, SpecBench, chosen
from ..bench.specfile import SpecFile, cells_of, fixed, read
from ..device import prepare
from ..metal.dispatch import kernels_for
from ..models import load_pair
from ..power import awake
from ..terminal import Output, interruptible, say, status_of
from .benchprogress import MeasureBar

SAVED = 20.0
"""Seconds between two times that what was measured is saved."""


def specbench(options: argparse.Namespace) -> int:
    """Measure what is missing, show what there is, and return the exit status."""
    began = time.perf_counter()
    until = None if options.minutes is None else began + 60 * options.minutes
    usual = Plan()
    plan = Plan(
        temperatures=tuple(options.temperatures or usual.temperatures),
        tasks=options.tasks,
        repeats=options.repeats,
        draws=options.draws,
        max_tokens=options.max_tokens,
        depths=tuple(options.depths or usual.depths),
        seed=options.seed,
    )
    tasks = from_file(Path(options.file).expanduser(), max_tokens=plan.max_tokens)
    prepare()
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        trust_remote_code=options.trust_remote_code,
        require_draft=True,
    )
    for notice in pair.notices:
        say(notice)
    kernels = kernels_for(pair, options.kernels)
    questions = chosen(tasks, pair, plan)
    path = Path(options.out).expanduser()
    file = SpecFile.open(path, fixed(pair, kernels, plan, questions))
    file.begin()
    bar, status = MeasureBar(), 0
    bench: SpecBench | None = None
    command = ["macspec", *sys.argv[1:]]
    saved = began
    try:
        with interruptible(), awake(options.settings.power.keep_awake):
            bench = SpecBench(
                pair,
                questions,
                plan,
                rows=file.rows,
                learned=file.learned,
                said=file.said,
                kernels=kernels,
                progress=bar.show,
            )
            for _ in bench.run(until):
                if time.perf_counter() - saved > SAVED:
                    saved = time.perf_counter()
                    file.save(bench, command, saved - began)
    except KeyboardInterrupt as interrupt:
        status = status_of(interrupt)
    finally:
        bar.end()
        if bench is not None:
            bench.close()
            file.save(bench, command, time.perf_counter() - began)
    if bench is None:
        say("nothing was measured yet")
        return status
    _tell(path, bench)
    return status


def _tell(path: Path, bench: SpecBench) -> None:
    document = read(path)
    parts = ["".join(f"{line}\n" for line in spectable.head(document))]
    parts += [table.text() for table in spectable.tables(document)]
    if document["cells"]:
        lines = [*spectable.verdict(cells_of(document)), *spectable.notes(document)]
        parts.append("".join(f"{line}\n" for line in lines))
    Output().text("\n".join(parts))
    done = "complete" if bench.complete else f"{bench.left} questions are left: run it again"
    say(f"report: {path}, {done}")
