"""Plain against speculative, in turns, and nothing of it stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from conversing import conversation_with, eventually, load, read
from scripted import Script, ScriptedEngine, Step, plain, said

from macspec.app.chat.comparison import Comparison
from macspec.app.chat.conversation import Conversation
from macspec.config import schema
from macspec.errors import BadOptionError, MacspecError
from macspec.worker import Call, Failed, ReplyRequest, ScoreMargin

TEXT = "The quick brown fox jumps over the lazy dog."


class Recording(ScriptedEngine):
    """Remembers with what tuning each reply was made."""

    def __init__(self, *replies: Any) -> None:
        super().__init__("Before.", *replies, instant=True)
        self.made: list[tuple[str, int | str, str, Any]] = []

    def reply(self, request: ReplyRequest) -> Call:
        it = self.tuning
        self.made.append((it.method, it.depth, it.rule, it.sampling.get("seed")))
        return super().reply(request)


def same() -> list[Script]:
    """Four replies with one text, the plain ones half as fast."""
    return [
        Script(plain(TEXT, seconds=0.1)),
        Script(said(TEXT, seconds=0.1, pattern=(1,))),
        Script(said(TEXT, seconds=0.1, pattern=(1,))),
        Script(plain(TEXT, seconds=0.1)),
    ]


async def ready(engine: ScriptedEngine, **settings: Any) -> Conversation:
    conversation = conversation_with(engine, **settings)
    await load(conversation)
    await read(conversation.ask("Which animal?"))
    return conversation


async def run(conversation: Conversation, rule: str | None = None) -> Sequence[Comparison]:
    return await read(conversation.compare(rule))


async def test_both_ways_take_turns_with_one_seed() -> None:
    engine = Recording(*same())
    conversation = await ready(engine)
    found = await run(conversation)
    assert [method for method, *_ in engine.made[1:]] == ["off", "auto", "auto", "off"]
    rules, seeds = (
        {rule for _, _, rule, _ in engine.made[1:]},
        {made[3] for made in engine.made[1:]},
    )
    assert rules == {"keyed"}
    assert len(seeds) == 1
    assert None not in seeds
    assert all(not request.learn for request in engine.requests[1:])
    last = found[-1]
    assert last.finished
    assert (last.prompt, last.rule, last.equal, last.fork) == ("Which animal?", "keyed", True, None)
    assert (last.plain.replies, last.speculative.replies) == (2, 2)
    assert last.plain.tokens_per_s == pytest.approx(10)
    assert last.speculative.tokens_per_s == pytest.approx(20, rel=0.15)
    assert (last.plain.tokens_per_pass, last.speculative.acceptance) == (1.0, 5 / 17)
    assert found[0].doing == "plain"
    assert all(0 <= (each.progress or 0) <= 1 for each in found)


async def test_what_was_set_is_set_again_and_nothing_is_kept() -> None:
    engine = Recording(*same(), "After.")
    conversation = await ready(engine, sampling=schema.Sampling(temperature=0.5, seed=None))
    await conversation.setup.tune(method="ngram", depth=3, rule="match")
    turns, before = conversation.turns, engine.tuning
    await run(conversation)
    assert [made[:2] for made in engine.made[2:4]] == [("ngram", 3), ("ngram", 3)]
    assert engine.tuning == before
    assert conversation.panel().method == "ngram"
    assert conversation.turns == turns
    assert conversation.chat is not None
    assert len(conversation.store.messages(conversation.chat.id)) == 2
    await read(conversation.ask("And?"))
    assert engine.made[-1] == ("ngram", 3, "match", None)


async def test_greedy_needs_no_seed_and_speculation_that_is_off_is_tried_all_the_same() -> None:
    engine = Recording(*same())
    conversation = await ready(engine, sampling=schema.Sampling(temperature=0))
    await conversation.setup.tune(method="off", depth=0)
    last = (await run(conversation))[-1]
    assert (last.rule, last.equal) == ("greedy", True)
    assert engine.made[2] == ("auto", "auto", "keyed", None)


async def test_under_the_block_rule_texts_are_not_compared() -> None:
    other = said("Another text.", pattern=(1,))
    engine = Recording(same()[0], other, other, same()[0])
    last = (await run(await ready(engine), "block"))[-1]
    assert (last.rule, last.equal, last.fork) == ("block", None, None)
    assert {made[2] for made in engine.made[1:]} == {"block"}
    with pytest.raises(BadOptionError, match="luck is not a rule"):
        (await ready(Recording())).compare("luck")


@pytest.mark.parametrize(("gap", "near"), [(0.001, True), (3.0, False)])
async def test_a_fork_is_shown_at_its_token(gap: float, near: bool) -> None:
    words = TEXT.split()
    fork = [Step((word if n == 0 else f" {word}",)) for n, word in enumerate(words[:4])]
    changed = [*fork, Step((" sleeps",), ids=(99,)), Step((" well.",), ids=(100,))]
    engine = Recording(same()[0], changed, changed, same()[0])
    engine.margin = ScoreMargin(gap, 0.25)
    last = (await run(await ready(engine)))[-1]
    assert last.equal is False
    assert last.fork is not None
    assert (last.fork.token, last.fork.before) == (4, "The quick brown fox ")
    assert (last.fork.plain, last.fork.speculative) == ("jumps over the lazy dog.", "sleeps well.")
    assert (last.fork.gap, last.fork.near_tie) == (gap, near)
    assert engine.margins == [((0, 1, 2, 3), (4, 99))]


async def test_a_text_that_only_ends_early_is_no_near_tie() -> None:
    engine = Recording(same()[0], said(TEXT[:19]), said(TEXT[:19]), same()[0])
    fork = (await run(await ready(engine)))[-1].fork
    assert fork is not None
    assert (fork.token, fork.speculative, fork.gap, fork.near_tie) == (4, "", None, False)
    assert engine.margins == []


async def test_a_run_that_is_left_puts_everything_back() -> None:
    engine = ScriptedEngine("Before.", *same())
    conversation = conversation_with(engine)
    await load(conversation)
    reply = conversation.ask("Which animal?")
    await anext(reply)
    engine.play_all()
    await read(reply)
    before = engine.tuning
    found = conversation.compare()
    first = asyncio.ensure_future(anext(found))
    await eventually(lambda: engine.playing)
    engine.play(2)
    assert (await first).plain.replies == 0
    assert conversation.busy
    with pytest.raises(BadOptionError, match="a comparison is running"):
        conversation.ask("Now?")
    await found.aclose()  # type: ignore[attr-defined]
    assert not conversation.busy
    assert not engine.playing
    assert engine.tuning == before


async def test_a_failure_ends_it_with_a_line() -> None:
    lost = Script(plain("The"), failure=Failed("crashed", "the engine stopped: it was killed"))
    engine = Recording(same()[0], lost, "Fine.")
    conversation = await ready(engine)
    with pytest.raises(MacspecError, match="it was killed"):
        await run(conversation)
    assert not conversation.busy
    assert (await read(conversation.ask("Well?")))[-1].reply.text == "Fine."


async def test_there_must_be_something_to_answer() -> None:
    conversation = conversation_with(ScriptedEngine())
    with pytest.raises(BadOptionError, match="send a message first"):
        conversation.compare()


async def test_greedy_can_be_asked_for_at_any_temperature() -> None:
    engine = Recording(*same())
    conversation = await ready(engine)
    temperatures: list[Any] = []
    async for _ in conversation.compare("greedy"):
        temperatures.append(engine.tuning.sampling["temperature"])
    assert set(temperatures) == {0}
    assert engine.tuning.sampling["temperature"] == conversation.panel().temperature == 0.7


async def test_the_numbers_are_of_the_conversation_again() -> None:
    conversation = await ready(Recording(*same()))
    before = conversation.panel()
    await read(conversation.compare("greedy"))
    after = conversation.panel()
    assert (after.tokens, after.passes, after.why) == (before.tokens, before.passes, before.why)
    assert after.tokens > 0
