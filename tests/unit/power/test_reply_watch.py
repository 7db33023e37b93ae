"""The energy of a reply, from its events."""

from __future__ import annotations

import json

import pytest
from scriptedpower import Script, Scripted, World, steady

from macspec.events import Event, Finished, Prefilled, Round, Text
from macspec.power import ClockWatch, Meter, ReplyWatch
from macspec.power.source import Rail
from macspec.stats import ReplyCounter


class Bench:
    def __init__(self) -> None:
        self.world = World()
        source = Scripted(self.world, {"gpu": Script(steady(20))}, (Rail("gpu"),))
        self.meter = Meter(lambda: source, clock=self.world.clock, wall=self.world.wall)
        self.meter.open()
        self.tick(5)
        self.watch = ReplyWatch(self.meter, ClockWatch(self.world.clock, self.world.wall))

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.now += 1
            self.meter.sample()

    def see(self, *events: Event) -> None:
        for event in events:
            self.watch.see(event)


def passed(tokens: int, seconds: float, drafted: int = 0) -> Round:
    drafter = "draft" if drafted else None
    return Round(tuple(range(tokens)), drafter, 4, drafted, 0, seconds, 0.0)


def finished() -> Finished:
    return Finished("end", "", (), 1, "block", "auto", "auto", ReplyCounter().stats())


def test_prefill_and_decode_apart() -> None:
    bench = Bench()
    bench.tick(4)
    bench.see(Prefilled(100, 60, 4.0), Text("a", ()), passed(1, 4.0))
    bench.tick(3)
    bench.see(passed(4, 3.0, drafted=4))
    bench.tick(3)
    bench.see(passed(6, 3.0, drafted=5), finished())
    assert bench.watch.settled
    bench.watch.settle()
    bench.tick(9)
    result = bench.watch.result()
    assert result.prefill.joules == pytest.approx(80)
    assert result.prefill.joules_per_token == pytest.approx(2)
    assert result.decode.tokens == 10
    assert result.decode.joules_per_token == pytest.approx(12)
    assert result.speculative
    assert not result.jumped
    assert json.loads(json.dumps(result.as_dict()))["decode"]["joules"] == pytest.approx(120)


def test_an_interrupted_reply_counts_what_came() -> None:
    bench = Bench()
    bench.tick(1)
    bench.see(Prefilled(10, 0, 1.0), passed(1, 1.0))
    bench.tick(2)
    bench.see(passed(1, 2.0))
    bench.watch.end()
    bench.watch.end()
    decode = bench.watch.result().decode
    assert decode.joules_per_token == pytest.approx(40)
    assert not bench.watch.result().speculative


def test_events_that_come_late_move_no_border() -> None:
    bench = Bench()
    bench.tick(10)
    bench.see(Prefilled(10, 0, 2.0), passed(1, 2.0), passed(4, 6.0), finished())
    result = bench.watch.result()
    assert result.prefill.seconds == pytest.approx(2)
    assert result.decode.seconds == pytest.approx(6)
    assert result.decode.joules == pytest.approx(120)


def test_a_reply_of_one_token_has_no_decode() -> None:
    bench = Bench()
    bench.tick(1)
    bench.see(Prefilled(10, 0, 1.0), passed(1, 1.0), finished())
    decode = bench.watch.result().decode
    assert decode.joules_per_token is None
    assert decode.reason == "0.0 s is too short to measure"


def test_a_reply_that_never_began() -> None:
    bench = Bench()
    bench.watch.end()
    assert bench.watch.result().decode.joules is None


def test_sleep_in_mid_reply_is_told_with_and_without_a_source() -> None:
    bench = Bench()
    bench.see(Prefilled(10, 0, 1.0), passed(1, 1.0))
    bench.world.asleep += 100
    bench.tick(2)
    bench.see(passed(1, 2.0), finished())
    assert bench.watch.result().jumped
    assert "slept" in str(bench.watch.result().decode.reason)
