"""``macspec bench``: measuring, and the controller on machines that are not at hand."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ..bench.simulate import (
    DRAFT_STEP,
    GAP,
    SHAKE,
    PublishedCurve,
    Result,
    as_record,
    best_for_all,
    published,
    simulate,
)
from ..bench.traces import Trace, shipped
from ..bench.traces import load as load_traces
from ..errors import BadOptionError
from ..terminal import INTERRUPTED, Output, interruptible

COLUMNS = "{:<12}{:<11}{:>6}{:>7}{:>7}{:>8}  {:<10}{:>8}{:>8}"

HEADER = COLUMNS.format(
    "trace", "", "plain", "auto", "again", "oracle", "", "regret", "again"
).rstrip()

NOTES = (
    "auto: the controller from its first start on; again: the same one, the same text once more",
    "oracle: the fastest single drafter and depth for that trace, found by sweep",
    "regret: the share of the oracle's speed that auto missed; below 0 it was faster",
    f"assumed: {DRAFT_STEP:g} plain steps a draft step, {GAP:g} for the host before a round that",
    f"is not launched ahead, nothing for a look-up; the controller's clock shakes by {SHAKE:.0%}",
    "between an author's points costs are straight lines; no pass is wider than the last point",
)


def bench(options: argparse.Namespace) -> int:
    """Run one of the experiments; returns the exit status."""
    if options.experiment == "measure":
        return _measure(options)
    if options.experiment == "specbench":
        from .specbench import specbench

        return specbench(options)
    try:
        with interruptible():
            return _simulate(options)
    except KeyboardInterrupt:
        return INTERRUPTED


def _measure(options: argparse.Namespace) -> int:
    if options.compare is not None:
        from ..bench.document import load
        from .benchreport import compared

        one, other = (load(Path(name).expanduser()) for name in options.compare)
        Output().text(compared(one, other))
        return 0
    from .measure import measure

    return measure(options)


def _simulate(options: argparse.Namespace) -> int:
    output = Output()
    curves = _chosen(options.curve)
    traces = shipped() if options.traces is None else load_traces(Path(options.traces))
    worst: list[Result] = []
    for curve in curves:
        if options.json:
            results = []
            for result in simulate([curve], traces):
                results.append(result)
                output.json({"event": "simulated", **as_record(result)})
        else:
            results = list(simulate([curve], traces))
            output.text("".join(f"{line}\n" for line in _table(curve, results)))
        worst += results
    if not options.json:
        output.text("".join(f"{line}\n" for line in _legend(traces, worst)))
    return 0


def _chosen(name: str | None) -> list[PublishedCurve]:
    curves = published()
    chosen = [curve for curve in curves if name in (None, curve.name)]
    if not chosen:
        known = ", ".join(curve.name for curve in curves)
        raise BadOptionError(f"there is no curve {name!r}; there are {known}")
    return chosen


def _table(curve: PublishedCurve, results: list[Result]) -> Iterator[str]:
    yield f"{curve.name}: {curve.machine}, as reported by {curve.whose}"
    yield f"  {HEADER}"
    for it in results:
        best = it.fixed[it.oracle].speed
        row = COLUMNS.format(
            it.trace.name,
            it.trace.kind,
            "1.00",
            f"{it.cold.speed:.2f}",
            f"{it.warm.speed:.2f}",
            f"{best:.2f}",
            str(it.oracle),
            f"{it.regret(it.cold):.1%}",
            f"{it.regret(it.warm):.1%}",
        )
        yield f"  {row}"
    yield f"  the best single setting for all of them together: {best_for_all(results)}"
    yield ""


def _legend(traces: list[Trace], results: list[Result]) -> Iterator[str]:
    yield from (f"{trace.name}: {trace.kind}; {trace.about}" for trace in traces)
    yield ""
    yield from NOTES
    if results:
        first = max(results, key=lambda it: it.regret(it.cold))
        again = max(results, key=lambda it: it.regret(it.warm))
        yield (
            f"largest regret: {first.regret(first.cold):.1%} "
            f"({first.curve.name}, {first.trace.name}), again {again.regret(again.warm):.1%} "
            f"({again.curve.name}, {again.trace.name})"
        )
