"""The energy of a run, with a source that says twenty watts."""

from __future__ import annotations

import time

import pytest
from scriptedpower import Script, Scripted, World, steady

from macspec.cli.run import Gauge
from macspec.events import Finished, Prefilled, Round
from macspec.power.choice import SOURCES
from macspec.power.source import Rail
from macspec.stats import ReplyCounter


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Chosen as ``rapl``, on the real clock."""
    monkeypatch.setattr("macspec.power.meter.SETTLING", 60.0)
    world = World()
    world.clock = time.monotonic  # type: ignore[method-assign]
    scripted = Scripted(world, {"gpu": Script(steady(20))}, (Rail("gpu"),))
    monkeypatch.setitem(SOURCES, "rapl", lambda: scripted)
    return scripted


def test_a_reply_is_measured(source: Scripted) -> None:
    gauge = Gauge(True, "rapl")
    while not source.reads:
        time.sleep(0.01)
    time.sleep(0.7)
    gauge.begin()
    gauge.see(Prefilled(5, 0, 0.1))
    for seconds in (0.1, 0.3, 0.3):
        gauge.see(Round((1, 2), None, 0, 0, 0, seconds, 0.0))
    gauge.see(Finished("end", "", (), 1, "block", "auto", "auto", ReplyCounter().stats()))
    result = gauge.result()
    assert result is not None
    assert result.decode.watts == pytest.approx(20)
    assert result.decode.joules_per_token == pytest.approx(20 * 0.6 / 4)
    assert result.as_dict()["decode"]["joules"] == pytest.approx(12)
    gauge.close()
    assert source.closed


def test_nothing_is_read_where_nothing_is_wanted(source: Scripted) -> None:
    gauge = Gauge(False, "rapl")
    gauge.begin()
    gauge.see(Prefilled(5, 0, 0.1))
    assert gauge.result() is None
    gauge.close()
    assert source.reads == []
