"""Sweeps: what is measured for each, and where it stands in the picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reports import measured, report, results

from macspec.bench.arms import ArmName
from macspec.bench.report import swept
from macspec.bench.sample import Rounds
from macspec.bench.sweeps import AT_ONCE, DEPTHS, SWEEPS, Setting, Sweep, entry, points_of
from macspec.cli.bench import SWEEPS as OFFERED
from macspec.errors import BadOptionError
from macspec.models import Pair


def test_every_sweep_that_is_offered_is_there() -> None:
    assert list(SWEEPS) == list(OFFERED)


@pytest.mark.parametrize("what", OFFERED)
def test_every_arm_of_a_sweep_is_one(pocket: Pair, what: str) -> None:
    pocket = replace(pocket, context=2048)
    sweep = SWEEPS[what](pocket)
    assert sweep.arms[0] == "plain"
    for text in sweep.arms:
        ArmName.parse(text)


def test_depths_reach_from_none_to_sixteen(pocket: Pair) -> None:
    assert (DEPTHS[0], DEPTHS[-1]) == (0, 16)
    sweep = SWEEPS["depth"](pocket)
    assert [it.arm for it in sweep.settings if it.series == "draft"] == [
        f"draft@{depth}" for depth in DEPTHS
    ]
    alone = SWEEPS["depth"](replace(pocket, draft=None))
    assert "ngram@4" in alone.arms
    assert AT_ONCE == (1, 2, 4)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("draft-bits", "needs a draft model"),
        ("trees", "needs a draft model"),
        ("context", "too short for a long prompt"),
    ],
)
def test_what_cannot_be_swept_is_refused(pocket: Pair, what: str, words: str) -> None:
    with pytest.raises(BadOptionError, match=words):
        SWEEPS[what](replace(pocket, draft=None))


def test_points_are_the_speeds_over_the_baseline(pocket: Pair) -> None:
    found = measured(pocket, {"plain": 50.0, "draft@1": 60.0, "draft@2": 75.0, "auto": 70.0})
    settings = (
        Setting("draft@1", 1, "draft"),
        Setting("draft@2", 2, "draft"),
        Setting("auto", "auto", ""),
    )
    sweep = Sweep("depth", settings, chooses="auto")
    for sample in found.samples:
        if sample.arm == "auto":
            sample.written.rounds[None, 0].count = 6  # type: ignore[index]
            sample.written.rounds["draft", 2] = Rounds(2, 4, 0.1)  # type: ignore[index]
    record = {"sweep": entry(sweep, results(found)[0], found)}
    points = points_of(record)
    assert [(it.x, it.temperature) for it in points] == [(1, 0.0), (1, 0.7), (2, 0.0), (2, 0.7)]
    assert points[0].value == pytest.approx(1.2, rel=0.1)
    assert points[2].value == pytest.approx(1.5, rel=0.1)
    chosen = record["sweep"]["chosen"]["0"]
    assert chosen["shares"] == [[0, 0.75], [2, 0.25]]
    assert chosen["x"] == 0.5
    (first, _) = swept(record)
    assert first.columns == ("depth", "draft", "95%", "tok/pass")
    assert [row[0] for row in first.rows] == ["1", "2"]


def test_a_context_sweep_has_the_prompts_length_for_its_axis(pocket: Pair) -> None:
    found = measured(pocket, {"plain": 50.0, "auto": 60.0})
    lengths = {"chat": 100, "maths": 900}
    found.questions = [replace(it, ids=(0,) * lengths[it.workload]) for it in found.questions]
    settings = (Setting("plain", 0, "plain"), Setting("auto", 0, "auto"))
    sweep = Sweep("tokens of the prompt", settings, workloads=("chat", "maths"))
    record = {"sweep": entry(sweep, results(found)[0], found)}
    points = [it for it in points_of(record) if it.series == "auto" and it.temperature == 0]
    assert [it.x for it in points] == [100, 900]


def test_a_report_without_a_sweep_has_no_points(pocket: Pair) -> None:
    assert not points_of(report(pocket, {"plain": 50.0, "auto": 60.0}))
