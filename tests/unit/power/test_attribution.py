"""Watts by kind of round, from whole replies of a scripted source."""

from __future__ import annotations

import random

import pytest
from scriptedpower import Script, Scripted, World

from macspec.events import Prefilled, Round
from macspec.power import ClockWatch, Meter, ReplyWatch
from macspec.power.attribution import RoundWatts
from macspec.power.source import Rail

TRUE = {(None, 0): 20.0, ("draft", 2): 26.0, ("draft", 5): 34.0}


def learned(replies: int, noise: float = 0.0) -> RoundWatts:
    """From replies that mix three kinds of rounds at random, each measured as a whole."""
    watts, chance = RoundWatts(), random.Random(1)
    for _ in range(replies):
        rounds = [(*kind, chance.random()) for kind in TRUE]
        joules = sum(TRUE[drafter, depth] * seconds for drafter, depth, seconds in rounds)
        watts.observe(joules * chance.uniform(1 - noise, 1 + noise), rounds)
    return watts


@pytest.mark.parametrize(("noise", "close"), [(0.0, 0.02), (0.1, 0.2)])
def test_watts_of_kinds_are_told_apart_by_replies_that_mix_them(noise: float, close: float) -> None:
    watts = learned(300, noise)
    for kind, true in TRUE.items():
        assert watts.of(*kind) == pytest.approx(true, rel=close)


def test_what_has_not_run_is_like_its_nearest_depth_or_like_all() -> None:
    watts = RoundWatts()
    assert not watts
    watts.observe(0.0, [(None, 0, 1.0)])
    watts.observe(20.0, [])
    assert not watts
    watts.observe(20.0, [(None, 0, 1.0)])
    assert watts.of("draft", 3) == watts.of(None, 0) == pytest.approx(20)
    watts.observe(60.0, [("draft", 4, 2.0)])
    assert watts.of("draft", 5) == watts.of("draft", 4) > watts.of("ngram", 4) > watts.of(None, 0)


def test_a_watch_gives_joules_and_seconds_of_the_decode_by_kind() -> None:
    world = World()
    source = Scripted(world, {"gpu": Script(lambda now: 30 * now)}, (Rail("gpu"),))
    meter = Meter(lambda: source, clock=world.clock, wall=world.wall)
    meter.open()
    watch = ReplyWatch(meter, ClockWatch(world.clock, world.wall))
    kinds = [("draft", 4, 1.0), (None, 0, 2.0), ("draft", 4, 3.0)]
    watch.see(Prefilled(10, 0, 1.0))
    for drafter, depth, seconds in [("draft", 4, 1.0), *kinds]:
        for _ in range(int(seconds)):
            world.now += 1
            meter.sample()
        watch.see(Round((1,), drafter, depth, depth, 0, seconds, 0.0))
    watch.end()
    watts = RoundWatts()
    joules = watch.result().decode.joules
    assert joules is not None
    assert watch.rounds == (("draft", 4, 4.0), (None, 0, 2.0))
    watts.observe(joules, watch.rounds)
    assert watts.of(None, 0) == watts.of("draft", 4) == pytest.approx(30)
