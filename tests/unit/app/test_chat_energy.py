"""What replies take, from a source that is there, from none, and after the reply's end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conversing import PATIENCE_S, conversation_with, ended, eventually, load, read, reading
from scripted import Script, ScriptedEngine, plain, said

from macspec.app.chat.conversation import Conversation
from macspec.app.chat.turns import ChatNotice
from macspec.config.schema import Config, Control
from macspec.power import Meter
from macspec.power.source import Rail, Reading
from macspec.store import Store
from macspec.worker.messages import MeasuredEnergy

WATTS = 8.0


class Steady:
    """A source of so many watts on the clock of the test."""

    name, basis = "steady", "a test's own"
    rails = (Rail("gpu"),)

    def __init__(self) -> None:
        self.now = 100.0

    def available(self) -> str | None:
        return None

    def read(self) -> Reading:
        return Reading(self.now, {"gpu": WATTS * self.now})

    def close(self) -> None:
        pass


class Hand(Meter):
    """A meter that is read when the test says so, and not by a thread."""

    def __init__(self, source: Steady) -> None:
        super().__init__(lambda: source, clock=lambda: source.now, wall=lambda: source.now)
        self.steady = source

    def start(self) -> None:
        self.open()
        self.tick(2)

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            self.steady.now += 1
            self.sample()


@pytest.fixture
def meter() -> Hand:
    return Hand(Steady())


async def measured(conversation: Conversation, engine: ScriptedEngine, meter: Hand) -> Any:
    """A reply of one second before its first word and six of decode."""
    async with reading(conversation.ask("Go.")) as reply:
        meter.tick(1)
        engine.play()
        await eventually(lambda: conversation.panel().tokens == 1)
        for _ in range(6):
            meter.tick(1)
            engine.play()
            await asyncio.sleep(0)
        return ended(await reply.all())


async def test_joules_of_a_reply_and_of_both_modes(meter: Hand) -> None:
    steps = plain("a b c d e f g", seconds=1.0)
    engine = ScriptedEngine(Script(steps, ttft=1.0), Script(steps, ttft=1.0))
    store = Store(None)
    conversation = Conversation(engine, store, Config(), meter=meter)
    happened: list[Any] = []
    conversation.measured = happened.append
    assert conversation.panel().energy_reason
    await load(conversation)
    turn = await measured(conversation, engine, meter)
    # The meter has not been read since the last token: the numbers may still change.
    meter.tick(2)
    await eventually(lambda: happened)
    assert happened == [conversation.turns[-1]]
    assert happened[0].id == turn.id
    stats = happened[0].stats
    assert stats.joules_per_token == pytest.approx(WATTS)
    assert stats.energy_basis == "gpu"
    making = store.message(turn.id).metadata
    assert making is not None
    assert making.energy is not None
    assert making.energy["decode"]["tokens"] == 6
    state = conversation.panel()
    assert state.watts == {"gpu": pytest.approx(WATTS)}
    assert state.plain_joules_per_token == pytest.approx(WATTS)
    assert (state.energy_reason, state.energy_source) == ("", "steady")
    again = Conversation(engine, store, Config())
    assert conversation.chat is not None
    again.open(conversation.chat.id)
    assert again.turns[-1].stats == stats
    await conversation.close()


async def test_without_a_source_there_is_a_reason_and_no_number() -> None:
    engine = ScriptedEngine(Script(said("Yes."), ttft=1.0), instant=True)
    conversation = conversation_with(engine)
    turn = ended(await read(conversation.ask("Go.")))
    assert turn.stats is not None
    assert turn.stats.joules_per_token is None
    state = conversation.panel()
    assert (state.watts, state.joules_per_token) == ({}, None)
    assert state.energy_reason == "power is not measured here"


async def test_leaving_does_not_wait_for_the_last_rail(meter: Hand) -> None:
    engine = ScriptedEngine(Script(plain("a b c d e f g", seconds=1.0), ttft=1.0))
    store = Store(None)
    conversation = Conversation(engine, store, Config(), meter=meter)
    await load(conversation)
    turn = await measured(conversation, engine, meter)
    async with asyncio.timeout(PATIENCE_S):
        await conversation._energy.close()
    making = store.message(turn.id).metadata
    assert making is not None
    assert making.energy is not None


THRIFTY = Config(control=Control(objective="energy"))


async def test_for_energy_the_engine_is_told_what_a_reply_took(
    monkeypatch: pytest.MonkeyPatch, meter: Hand
) -> None:
    engine = ScriptedEngine(Script(plain("a b c d e f g", seconds=1.0), ttft=1.0))
    told: list[object] = []
    ask = engine.ask
    monkeypatch.setattr(engine, "ask", lambda command: (told.append(command), ask(command))[1])
    conversation = Conversation(engine, Store(None), THRIFTY, meter=meter)
    await load(conversation)
    assert conversation.setup.desired.objective == "energy"
    await measured(conversation, engine, meter)
    meter.tick(2)
    await eventually(lambda: any(isinstance(it, MeasuredEnergy) for it in told))
    (energy,) = [it for it in told if isinstance(it, MeasuredEnergy)]
    assert energy.joules == pytest.approx(6 * WATTS)
    assert energy.rounds == ((None, 0, 6.0),)
    await conversation.close()


async def test_without_a_source_one_line_says_that_speed_is_the_objective() -> None:
    engine = ScriptedEngine("Yes.", "No.", instant=True)
    conversation = Conversation(engine, Store(None), THRIFTY)
    await load(conversation)
    updates = [*await read(conversation.ask("Go.")), *await read(conversation.ask("Go on."))]
    lines = [update.line for update in updates if isinstance(update, ChatNotice)]
    assert lines == [
        "energy is not measured, so the objective is speed: power is not measured here"
    ]
