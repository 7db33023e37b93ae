"""The whole app around a real engine whose target, draft and head change while a reply runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from macspec.app.chat.conversation import Conversation
from macspec.app.chat.replies import StreamingReply
from macspec.assets import pocket
from macspec.worker import ProcessEngine

TARGET, DRAFT, _ = map(str, pocket())
HEAD = str(Path(__file__).parents[1] / "unit" / "heads" / "trained" / "mtp")
LONG = "Tell me a long story about a fox, a crow and a river."


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(log=tmp_path / "engine.log")
    yield engine
    engine.close()


def streamed(conversation: Conversation) -> str:
    """The text of the reply that streams, so far."""
    work = conversation._work
    return work.reply.text if isinstance(work, StreamingReply) else ""


@pytest.mark.slow
async def test_no_text_is_lost_and_no_head_stays(
    running: Callable[..., Any], child: ProcessEngine, settings: Path
) -> None:
    settings.write_text("[reply]\nmax_tokens = 200\n")
    async with running(engine=child) as it:
        conversation = it.app.conversation
        await it.until(lambda: conversation.panel().activity == "ready")
        await it.send("/sampling temperature 2")  # hardly ever ends by itself
        before, running_then = "", []
        for pair in (f"{TARGET} {HEAD}", f"{TARGET} {DRAFT}", f"{TARGET} {HEAD}", DRAFT, TARGET):
            turns, loaded = len(conversation.turns), conversation._live.pair
            await it.send(LONG)
            await it.until(lambda turns=turns: len(conversation.turns) == turns + 2)
            await it.until(lambda: streamed(conversation) or not conversation.busy)
            running_then.append(conversation.busy)
            shown = streamed(conversation)
            await it.send(f"/models {pair}")
            await it.until(lambda: not conversation.busy)
            await it.until(lambda loaded=loaded: conversation._live.pair not in (loaded, None))
            await it.until(lambda: conversation.panel().activity == "ready")
            assert conversation.turns[-1].text.startswith(shown)
            texts = [turn.text for turn in conversation.turns]
            assert "".join(texts).startswith(before)
            before = "".join(texts)
            info = conversation._live.pair
            assert (info.head == "mtp") == pair.endswith(HEAD), pair
            if info.head:
                await it.send("/method mtp")
        assert any(running_then)
