"""Energy in the table of statistics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from macspec.cli.run import statistics_table
from macspec.events import Finished
from macspec.power import Energy, ReplyEnergy
from macspec.stats import ReplyCounter

DECODE = Energy(
    10.0,
    100,
    "apple",
    "the whole chip",
    {"gpu": 150.0, "cpu": 50.0},
    ("gpu", "cpu"),
    {},
    {"gpu": 1.0, "cpu": 2.0},
)


def rows(energy: ReplyEnergy | None) -> dict[str, str]:
    counter = ReplyCounter()
    for seconds in (1.0, 0.5, 0.5):
        counter.add(1, seconds)
    finished = Finished("end", "", (), 1, "block", "auto", "auto", counter.stats())
    lines = statistics_table(finished, energy).splitlines()
    return {line[:21].strip(): line[21:] for line in lines if line[:21].strip()}


def test_joules_per_token_and_what_they_are_of() -> None:
    energy = rows(ReplyEnergy(DECODE, DECODE, True, False))["energy"]
    assert energy.startswith("2 J/token")
    assert energy.endswith("20.0 W of gpu and cpu, the whole chip; 1.7 J above idle")
    unknown = replace(DECODE, idle_watts={})
    assert rows(ReplyEnergy(DECODE, unknown, True, False))["energy"].endswith(
        "no idle baseline is known"
    )


@pytest.mark.parametrize(
    ("decode", "says"),
    [
        (replace(DECODE, reason="the machine slept"), "the machine slept"),
        (replace(DECODE, tokens=0), "no token was decoded"),
    ],
)
def test_a_dash_has_a_reason(decode: Energy, says: str) -> None:
    assert rows(ReplyEnergy(DECODE, decode, True, False))["energy"].split(maxsplit=1) == ["-", says]


def test_a_sleep_leaves_no_latency() -> None:
    whole, slept = (rows(ReplyEnergy(DECODE, DECODE, True, jumped)) for jumped in (False, True))
    assert whole["inter-token latency"].startswith("500.0 ms")
    assert slept["inter-token latency"].startswith("-")


def test_nothing_is_said_where_nothing_was_measured() -> None:
    assert "energy" not in rows(None)
