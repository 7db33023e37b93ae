"""A reply that went on: its numbers are of all its parts."""

from __future__ import annotations

from typing import Any

import pytest

from macspec.app.chat.turns import turn_stats, with_earlier, with_newest
from macspec.app.transcript.header import figures
from macspec.stats import ReplyCounter


def part(*rounds: tuple[int, int, int], ttft: float = 0.5, slept: bool = False) -> dict[str, Any]:
    """The numbers of one part: of each round tokens, drafted, accepted; each took 0.1 s."""
    counter = ReplyCounter(slept=slept)
    for tokens, drafted, accepted in rounds:
        seconds = 0.1 if counter.passes else ttft
        counter.add(tokens, seconds, drafted=drafted, accepted=accepted)
    return counter.stats().as_dict()


def energy(tokens: int, joules: float | None, counted: tuple[str, ...] = ("gpu",)) -> Any:
    each = None if joules is None else joules / tokens
    reason = "the counter stood still" if joules is None else None
    decode = {"tokens": tokens, "joules": joules, "joules_per_token": each, "reason": reason}
    return {"decode": {**decode, "counted": list(counted)}}


FIRST = part((1, 0, 0), (3, 4, 2), (3, 4, 2))
SECOND = part((2, 1, 1), (1, 4, 0), ttft=2.0)
ONCE = part((1, 0, 0), ttft=9.0)


def test_all_parts_count() -> None:
    stats = turn_stats(with_earlier(FIRST, SECOND), with_earlier(energy(6, 3.0), energy(1, 4.0)))
    assert stats is not None
    assert (stats.tokens, stats.parts, stats.whole) == (10, 2, True)
    assert stats.acceptance == pytest.approx(5 / 13)
    assert stats.tokens_per_pass == pytest.approx(10 / 5)
    assert stats.tokens_per_s == pytest.approx(7 / 0.3)
    assert stats.ttft_s == pytest.approx(0.5)
    assert (stats.joules_per_token, stats.energy_basis) == (1.0, "gpu")
    assert figures(stats)[0] == "10 tokens in 2 parts"


def test_a_part_of_one_pass_has_no_decode() -> None:
    stats = turn_stats(with_earlier(with_earlier(FIRST, ONCE), SECOND), None)
    assert stats is not None
    assert (stats.tokens, stats.parts) == (11, 3)
    assert stats.tokens_per_s == pytest.approx(7 / 0.3)
    assert stats.joules_per_token is None


def test_a_part_without_a_time_leaves_the_whole_without_one() -> None:
    slept = part((1, 0, 0), (1, 0, 0), slept=True)
    stats = turn_stats(with_earlier(slept, SECOND), None)
    assert stats is not None
    assert (stats.tokens, stats.tokens_per_s, stats.ttft_s) == (5, None, None)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (energy(6, None), "the counter stood still"),
        (energy(6, 1.0, ("gpu", "dram")), "only part of it was measured"),
        (None, "only part of it was measured"),
    ],
)
def test_joules_that_are_not_of_all_parts_are_none(first: Any, reason: str) -> None:
    stats = turn_stats(with_earlier(FIRST, SECOND), with_earlier(first, energy(1, 4.0)))
    assert stats is not None
    assert (stats.joules_per_token, stats.energy_basis) == (None, reason)


def test_of_unknown_parts_only_the_last_is_told() -> None:
    stats = turn_stats(with_earlier(None, SECOND), with_earlier(None, energy(1, 4.0)))
    assert stats is not None
    assert (stats.tokens, stats.whole, stats.joules_per_token) == (3, False, 4.0)
    assert figures(stats)[0] == "3 tokens in the last part"


def test_a_part_in_which_nothing_came_changes_nothing() -> None:
    assert with_earlier(FIRST, None) == FIRST


def test_energy_that_settles_later_is_the_last_part_s() -> None:
    before = with_earlier(energy(6, 3.0), energy(1, None))
    stats = turn_stats(with_earlier(FIRST, SECOND), with_newest(before, energy(1, 4.0)))
    assert stats is not None
    assert stats.joules_per_token == 1.0


@pytest.mark.parametrize("odd", [{"earlier": 7}, {"earlier": [1, "x"]}, {"earlier": [{}]}, {}])
def test_what_was_imported_may_be_anything(odd: dict[str, Any]) -> None:
    assert turn_stats({"tokens": "many", **odd}, {"decode": 3, **odd}) is not None
