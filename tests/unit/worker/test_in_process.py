"""The same interface without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from macspec import Session
from macspec.events import Finished, Round, Text
from macspec.models import Pair
from macspec.worker import Failed, Loaded, PairChoice, ReplyRequest, Status, Tuned, Unloaded
from macspec.worker.engine import Engine
from macspec.worker.inprocess import InProcessEngine
from macspec.worker.messages import Answer
from macspec.worker.registry import Registry

ASK = ReplyRequest("I need a hotel in London.", max_tokens=24)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    client = InProcessEngine(Engine(Registry(tmp_path)))
    client.start()
    assert isinstance(client.load(PairChoice(learn=False)).result(), Loaded)
    client.tune(sampling={"temperature": 0})
    yield client
    client.close()


def test_it_says_what_the_session_says(engine: InProcessEngine) -> None:
    call = engine.reply(ASK)
    events = list(call)
    last = call.result()
    assert events[-1] == last
    assert isinstance(last, Finished)
    assert call.text == last.text
    assert sum(isinstance(event, Round) for event in events) == last.stats.passes


def test_an_event_loop_can_read_it_too(engine: InProcessEngine) -> None:
    async def read() -> list[Answer]:
        return [event async for event in engine.reply(ASK)]

    pieces = [event.delta for event in asyncio.run(read()) if isinstance(event, Text)]
    assert "".join(pieces) == engine.reply(ASK).result().text  # type: ignore[union-attr]


def test_it_ends_between_two_rounds(engine: InProcessEngine) -> None:
    call = engine.reply(ASK)
    for event in call:
        if isinstance(event, Text):
            engine.interrupt()
    last = call.result()
    assert isinstance(last, Finished)
    assert (last.reason, last.stats.passes) == ("interrupted", 1)
    assert last.text == call.text
    waiting = engine.reply(ASK)
    waiting.stop()
    assert isinstance(waiting.result(), Failed)


def test_what_is_wrong_is_refused(engine: InProcessEngine, tmp_path: Path) -> None:
    for call in (
        engine.load(PairChoice(str(tmp_path))),
        engine.tune(depth=99),
        engine.reply(ReplyRequest("")),
    ):
        last = call.result()
        assert isinstance(last, Failed)
        assert last.kind == "refused"
    assert isinstance(engine.status().result(), Status)
    assert isinstance(engine.tune(depth=3).result(), Tuned)
    assert isinstance(engine.unload().result(), Unloaded)
    assert "no model" in engine.reply(ASK).result().message  # type: ignore[union-attr]


def test_the_next_reply_ends_the_one_before(engine: InProcessEngine) -> None:
    first = engine.reply(ASK)
    next(first)
    assert isinstance(engine.reply(ASK).result(), Finished)
    assert isinstance(first.result(), Failed)


def test_another_target_is_not_for_this_session(pocket: Pair) -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match="keeps its target"):
        Session(pocket).change_draft(replace(pocket, target=replace(pocket.target)))
