"""Two reports side by side."""

from __future__ import annotations

import pytest
from reports import report

from macspec.bench.cells import Ratio
from macspec.bench.compare import agree, blocks, differences, disagreements, tables
from macspec.bench.report import terminal
from macspec.models import Pair

SPEEDS = {"plain": 50.0, "auto": 80.0}


def test_the_same_thing_measured_twice_agrees(pocket: Pair) -> None:
    one = report(pocket, SPEEDS)
    assert "no intervals disagree" in terminal(blocks(one, one))
    table = next(iter(tables(one, one)))
    assert {row[7] for row in table.rows} == {"yes"}
    others = [report(pocket, SPEEDS, seed=seed) for seed in range(2, 12)]
    assert not any(list(differences(one, other)) for other in others)
    # Of two intervals of 95 % one in some 150 pairs fails to meet; there are six cells in each.
    assert sum(disagreements(one, other) for other in others) <= 3


def test_what_became_slower_is_found(pocket: Pair) -> None:
    one, other = report(pocket, SPEEDS), report(pocket, {**SPEEDS, "auto": 60.0}, seed=2)
    assert disagreements(one, other) > 0
    said = terminal(blocks(one, other))
    assert "NO" in said
    assert "of the intervals do not overlap" in said


def test_what_was_not_the_same_is_told(pocket: Pair) -> None:
    one, other = report(pocket, SPEEDS), report(pocket, SPEEDS)
    other["machine"]["versions"] = {**other["machine"]["versions"], "mlx": "9.9"}
    other["protocol"]["repeats"] = 7
    other["questions"] = other["questions"][:4]
    other["ended"] = "interrupted"
    said = list(differences(one, other))
    assert any(line.startswith("machine: versions mlx: ") and "9.9 in B" in line for line in said)
    assert "protocol: repeats: 3 in A, 7 in B" in said
    assert "prompts: 10 in A, 4 in B, 4 of them the same" in said
    assert "B was interrupted" in said


def test_arms_of_one_report_alone_are_shown(pocket: Pair) -> None:
    one, other = report(pocket, SPEEDS), report(pocket, {**SPEEDS, "draft": 70.0})
    table = next(iter(tables(one, other)))
    row = next(row for row in table.rows if row[1] == "draft")
    assert row[2] == "-"
    assert row[4] != "-"


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [((1.0, 1.2), (1.1, 1.5), True), ((1.0, 1.2), (1.3, 1.5), False), ((1.0, 1.2), None, None)],
)
def test_intervals_that_meet_agree(
    one: tuple[float, float], other: tuple[float, float] | None, agreed: bool | None
) -> None:
    ratios = [
        None if ends is None else Ratio(sum(ends) / 2, *ends, 6, 18, "tasks")
        for ends in (one, other)
    ]
    assert agree(*ratios) is agreed
