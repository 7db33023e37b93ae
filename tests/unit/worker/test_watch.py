"""When a silent engine is spoken of, and when it is ended."""

from __future__ import annotations

from dataclasses import dataclass

from macspec.events import Round, Text
from macspec.worker import PairChoice, ReplyRequest
from macspec.worker.watch import HUNG, LOADING, OBEYED, PREFILL, ROUND, STOPPED, Watch

ROUNDED = Round((1,), None, 0, 0, 0, 0.01, 0.0)
REPLY = ReplyRequest("hello")


@dataclass
class World:
    now: float = 0.0
    frozen: bool = False

    def watch(self) -> Watch:
        return Watch(lambda: self.now, lambda pid: self.frozen)


def said(watch: Watch, command: object) -> str:
    notice = watch.look(command, 7).notice
    return "" if notice is None else notice.message


def test_a_process_that_is_stopped_is_told_at_once_and_once() -> None:
    world = World(frozen=True)
    watch = world.watch()
    world.now = STOPPED - 0.1
    assert said(watch, REPLY) == ""
    world.now = STOPPED
    assert said(watch, REPLY) == (
        "the engine is stopped by a signal: kill -CONT 7 lets it go on; stopping it (Esc or "
        "Ctrl-C) keeps the text so far"
    )
    world.now += 100
    assert said(watch, REPLY) == ""
    back = watch.hear(Text("a", (), ()))
    assert back is not None
    assert back.message == "the engine goes on"
    assert watch.hear(Text("b", (), ())) is None


def test_the_first_round_may_take_long_and_later_ones_as_long_as_those_before() -> None:
    world = World()
    watch = world.watch()
    world.now = PREFILL - 1
    assert said(watch, REPLY) == ""
    watch.hear(ROUNDED)
    world.now += 2
    watch.hear(ROUNDED)
    world.now += 19
    assert said(watch, REPLY) == ""
    world.now += 1
    assert "silent for 20 s" in said(watch, REPLY)


def test_quick_rounds_are_missed_early() -> None:
    world = World()
    watch = world.watch()
    for _ in range(3):
        watch.hear(ROUNDED)
    world.now += ROUND - 0.1
    assert said(watch, REPLY) == ""
    world.now += 0.1
    assert "silent" in said(watch, REPLY)


def test_an_engine_is_hung_when_no_kernel_takes_so_long_and_it_is_not_stopped() -> None:
    for frozen in (False, True):
        world = World(frozen=frozen)
        watch = world.watch()
        watch.hear(ROUNDED)
        for now, hung in ((HUNG - 0.1, False), (HUNG, not frozen), (HUNG + 1, not frozen)):
            world.now = now
            assert watch.look(REPLY, 7).hung is hung
        watch.stop()
        assert watch.look(REPLY, 7).hung is not frozen
        watch.alive()  # another call's events
        assert not watch.look(REPLY, 7).hung


def test_a_load_without_progress_is_told() -> None:
    world = World()
    watch = world.watch()
    world.now = LOADING
    assert "nothing was read for 15 s" in said(watch, PairChoice())


def test_a_load_that_does_not_stop_is_ended() -> None:
    world = World()
    watch = world.watch()
    watch.stop()
    world.now = OBEYED - 0.1
    assert not watch.look(PairChoice(), 7).hopeless
    world.now = OBEYED
    assert watch.look(PairChoice(), 7).hopeless


def test_a_reply_that_works_on_gets_the_time_of_its_rounds() -> None:
    world = World()
    watch = world.watch()
    watch.hear(ROUNDED)
    watch.stop()
    world.now = ROUND - 0.1
    assert not watch.look(REPLY, 7).hopeless
    world.now = ROUND
    assert watch.look(REPLY, 7).hopeless


def test_a_stopped_process_is_ended_at_once_and_so_is_one_that_is_asked_again() -> None:
    for frozen in (True, False):
        world = World(frozen=frozen)
        watch = world.watch()
        watch.hear(ROUNDED)
        watch.stop()
        world.now = OBEYED
        if not frozen:
            assert not watch.look(REPLY, 7).hopeless
            watch.stop()
        assert watch.look(REPLY, 7).hopeless


def test_the_next_call_starts_anew() -> None:
    world = World()
    watch = world.watch()
    watch.hear(ROUNDED)
    watch.stop()
    world.now = 100.0
    watch.begin()
    assert watch.look(REPLY, 7) == watch.look(REPLY, 7)
    assert not watch.look(REPLY, 7).hopeless
