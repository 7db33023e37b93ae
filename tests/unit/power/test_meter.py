"""A meter over a scripted source: windows, sleep, idleness, and sources that fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from scriptedpower import Script, Scripted, World, steady

from macspec.power import Meter
from macspec.power.history import GAP, REST_BEGINS, REST_LEAST, Idle
from macspec.power.source import NoSource, PowerError, PowerSource, Rail, Reading

GPU, CPU, ANE = Rail("gpu"), Rail("cpu", batched=True), Rail("ane", batched=True)
SYSTEM = Rail("system", contains=True)


def scripted(world: World, **settings: object) -> Scripted:
    scripts = {
        "gpu": Script(steady(20)),
        "cpu": Script(steady(5), period=2.1, phase=0.4),
        "ane": Script(lambda now: 7.0),
        "system": Script(steady(40)),
    }
    return Scripted(world, scripts, (GPU, CPU, ANE, SYSTEM), **settings)  # type: ignore[arg-type]


class Bench:
    """A meter whose clock the test turns, read once a second."""

    def __init__(self, idle: Idle | None = None, **settings: object) -> None:
        self.world = World()
        self.source = scripted(self.world, **settings)
        self.meter = Meter(
            lambda: self.source, clock=self.world.clock, wall=self.world.wall, idle=idle
        )
        assert self.meter.open()
        self.meter.sample()

    def run(self, seconds: float, step: float = 1.0) -> None:
        for _ in range(round(seconds / step)):
            self.world.now += step
            self.meter.sample()


def test_a_long_reply_counts_every_rail_that_moves() -> None:
    bench = Bench()
    bench.run(5)
    start = bench.meter.begin()
    bench.run(20)
    end = bench.meter.mark()
    bench.run(3)
    energy = bench.meter.energy(start, end, tokens=100)
    assert energy.reason is None
    assert energy.counted == ("gpu", "cpu")
    assert energy.of == "gpu and cpu"
    assert energy.rails["gpu"] == pytest.approx(400)
    assert energy.rails["cpu"] == pytest.approx(100, abs=5)
    assert energy.rails["system"] == pytest.approx(800)
    assert energy.joules == pytest.approx(500, abs=5)
    assert energy.joules_per_token == pytest.approx(5, abs=0.05)
    assert energy.watts == pytest.approx(25, abs=0.25)
    assert energy.missing == {"ane": "did not move", "system": "includes the other rails"}
    assert energy.net_joules is None


def test_a_short_reply_counts_the_smooth_rails_alone() -> None:
    bench = Bench()
    bench.run(5)
    start = bench.meter.begin()
    bench.run(3)
    end = bench.meter.mark()
    bench.run(3)
    energy = bench.meter.energy(start, end, tokens=30)
    assert energy.counted == ("gpu",)
    assert energy.joules_per_token == pytest.approx(2)
    assert energy.missing["cpu"] == "needs 5 s"


def test_a_blink_is_too_short() -> None:
    bench = Bench()
    bench.run(5)
    start = bench.meter.begin()
    bench.run(0.2, step=0.1)
    energy = bench.meter.energy(start, bench.meter.mark(), tokens=3)
    assert energy.joules is None
    assert energy.joules_per_token is None
    assert energy.reason == "0.2 s is too short to measure"


def test_a_window_settles_when_the_batches_are_in() -> None:
    bench = Bench()
    bench.run(6)
    start = bench.meter.begin()
    bench.run(10.5, step=0.5)
    end = bench.meter.mark()
    assert not bench.meter.settled(start, end)
    waited = 0
    while not bench.meter.settled(start, end):
        bench.run(0.5, step=0.5)
        waited += 1
    # The Neural Engine never moves, and nobody waits for it.
    assert 0 < waited <= 6
    before = bench.meter.energy(start, end, 1)
    bench.run(10)
    assert bench.meter.energy(start, end, 1).rails == pytest.approx(before.rails)


def test_watts_are_those_of_the_rails_that_move() -> None:
    bench = Bench()
    assert bench.meter.watts() == {}
    bench.run(12)
    watts = bench.meter.watts()
    assert watts["gpu"] == pytest.approx(20)
    assert watts["cpu"] == pytest.approx(5, rel=0.35)
    assert "ane" not in watts
    bench.world.now += 11
    assert bench.meter.watts() == {}


@pytest.mark.parametrize("slept", [3600.0, -3600.0, 1.5])
def test_sleep_voids_what_it_falls_into_and_nothing_else(slept: float) -> None:
    bench = Bench()
    bench.run(8)
    first = bench.meter.begin()
    bench.run(8)
    second = bench.meter.begin()
    bench.run(4)
    bench.world.asleep += slept
    bench.run(4)
    third = bench.meter.begin()
    bench.run(8)
    assert bench.meter.energy(first, second, 1).rails["gpu"] == pytest.approx(160)
    void = bench.meter.energy(second, third, 1)
    assert void.joules is None
    assert void.reason == "the machine slept or its clock was set"
    assert bench.meter.energy(third, bench.meter.now(), 1).rails["gpu"] == pytest.approx(160)


def test_a_clock_that_is_set_gently_voids_nothing() -> None:
    bench = Bench()
    start = bench.meter.begin()
    for _ in range(10):
        bench.run(1)
        bench.world.asleep += 0.01
    assert bench.meter.energy(start, bench.meter.now(), 1).reason is None


def test_a_gap_between_readings_voids() -> None:
    bench = Bench()
    bench.run(3)
    start = bench.meter.begin()
    bench.world.now += GAP + 2
    bench.meter.sample()
    energy = bench.meter.energy(start, bench.meter.now(), 1)
    assert energy.reason == "no reading for 12 s"


def test_a_counter_that_begins_anew_voids() -> None:
    bench = Bench()
    start = bench.meter.begin()
    bench.run(3)
    bench.source.scripts = {**bench.source.scripts, "gpu": Script(lambda now: now / 1e3)}
    bench.run(3)
    energy = bench.meter.energy(start, bench.meter.now(), 1)
    assert energy.reason == "the counter of gpu was reset"


def test_a_rail_that_comes_and_goes_is_left_out() -> None:
    bench = Bench(hidden=lambda rail, now: rail == "cpu" and now > 1008)
    start = bench.meter.begin()
    bench.run(30)
    energy = bench.meter.energy(start, bench.meter.now(), 1)
    assert energy.counted == ("gpu",)
    assert energy.missing["cpu"] == "did not move"


def test_a_counter_that_freezes_while_another_goes_on() -> None:
    bench = Bench()
    bench.source.scripts["cpu"].joules = lambda now: 5 * min(now, 1008)
    start = bench.meter.begin()
    bench.run(30)
    energy = bench.meter.energy(start, bench.meter.now(), 1)
    assert energy.counted == ("gpu",)
    watts = bench.meter.watts()
    assert watts["gpu"] == pytest.approx(20)
    assert "cpu" not in watts


def test_one_failed_reading_is_forgiven() -> None:
    bench = Bench(dies=lambda now: 1003 < now < 1006)
    start = bench.meter.begin()
    bench.run(12)
    assert bench.meter.reason is None
    assert bench.meter.energy(start, bench.meter.now(), 1).rails["gpu"] == pytest.approx(240)


def test_a_source_that_dies_is_said_and_keeps_what_was() -> None:
    bench = Bench(dies=lambda now: now > 1010)
    start = bench.meter.begin()
    bench.run(9)
    end = bench.meter.mark()
    bench.run(1)
    bench.world.now += 1
    assert bench.meter.sample()
    assert bench.meter.sample()
    assert not bench.meter.sample()
    why = "scripted stopped answering: gone"
    assert bench.meter.reason == why
    assert bench.meter.energy(start, end, 1).rails["gpu"] == pytest.approx(180)
    assert bench.meter.energy(start, bench.meter.now(), 1).reason == why
    assert bench.meter.watts() == {}
    assert bench.meter.settled(end, bench.meter.now())


def test_nothing_to_measure_with() -> None:
    meter = Meter(lambda: NoSource("no meter at hand"))
    before = meter.energy(0, 1, 1)
    assert before.reason == "still looking for a power source"
    assert not meter.open()
    assert meter.reason == "no meter at hand"
    assert meter.energy(0, 1, 1).reason == "no meter at hand"
    assert meter.watts() == {}
    assert meter.settled(0, 1)


def test_a_search_that_fails_is_a_reason() -> None:
    def find() -> PowerSource:
        raise OSError("out of luck")

    meter = Meter(find)
    assert not meter.open()
    assert meter.reason == "the power source failed: out of luck"


def resting(bench: Bench, seconds: float) -> None:
    bench.meter.rest()
    bench.run(seconds)


def test_the_net_is_without_what_the_machine_takes_when_idle() -> None:
    bench = Bench()
    watts = bench.source.scripts["gpu"]
    watts.joules = lambda now: 2e4 + 2 * min(now - 1000, 20) + 30 * max(now - 1020, 0)
    resting(bench, 20)
    start = bench.meter.begin()
    assert bench.meter.idle is not None
    assert bench.meter.idle.watts["gpu"] == pytest.approx(2)
    assert "ane" not in bench.meter.idle.watts
    bench.run(3)
    energy = bench.meter.energy(start, bench.meter.now(), tokens=10)
    assert energy.joules == pytest.approx(90)
    assert energy.net_joules == pytest.approx(84)
    assert energy.net_joules_per_token == pytest.approx(8.4)


def test_a_short_rest_is_no_baseline() -> None:
    bench = Bench()
    resting(bench, REST_BEGINS + REST_LEAST - 1)
    bench.meter.begin()
    assert bench.meter.idle is None


def test_a_rest_with_sleep_in_it_is_no_baseline() -> None:
    bench = Bench()
    resting(bench, 10)
    bench.world.asleep += 60
    bench.run(10)
    bench.meter.begin()
    assert bench.meter.idle is None


@pytest.mark.parametrize(("source", "known"), [("scripted", True), ("another", False)])
def test_a_baseline_of_an_earlier_session_is_for_the_same_source(source: str, known: bool) -> None:
    bench = Bench(idle=Idle(source, {"gpu": 3.0}, 60, 1.7e9))
    start = bench.meter.begin()
    bench.run(4)
    energy = bench.meter.energy(start, bench.meter.now(), 1)
    assert energy.net_joules == (pytest.approx(68) if known else None)


class Steady(Scripted):
    """Twenty watts on the real clock."""

    def __init__(self, dies: Callable[[float], bool] = lambda now: False) -> None:
        super().__init__(World(), {"gpu": Script(steady(20))}, (GPU,), dies=dies)
        self.world.clock = time.monotonic  # type: ignore[method-assign]


def test_in_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macspec.power.meter.SETTLING", 60.0)
    source = Steady()
    meter = Meter(lambda: source)
    meter.start()
    meter.start()
    start = meter.begin()
    time.sleep(0.6)
    end = meter.mark()
    meter.settle(start, end)
    energy = meter.energy(start, end, tokens=6)
    assert energy.watts == pytest.approx(20)
    assert meter.reason is None
    meter.stop()
    assert source.closed


def test_a_source_that_hangs_stops_nobody() -> None:
    source = Steady()
    leave = threading.Event()

    def read() -> Reading:
        leave.wait(60)
        raise PowerError("hung up")

    source.read = read  # type: ignore[method-assign]
    meter = Meter(lambda: source)
    meter.start()
    start = meter.begin()
    energy = meter.energy(start, meter.mark() + 1, tokens=6)
    assert energy.joules is None
    leave.set()
    meter.stop()
