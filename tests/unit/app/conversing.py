"""A conversation with a scripted engine, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from scripted import ScriptedEngine

from macspec.app.chat.conversation import Conversation
from macspec.app.chat.turns import Began, ChatNotice, Ended, TextPiece, Turn, Update
from macspec.config.schema import Config
from macspec.store import Store
from macspec.worker import Loaded, PairChoice

PATIENCE_S = 60.0
"""What nothing takes even on a busy machine."""

LONG = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun."
"""A reply of many words."""


def conversation_with(
    engine: ScriptedEngine, store: Store | None = None, **settings: Any
) -> Conversation:
    """A conversation that is ready, in a store in memory."""
    return Conversation(engine, store or Store(None), Config(**settings))


async def load(conversation: Conversation, choice: PairChoice | None = None) -> list[Any]:
    """Load a pair, and return what was told."""
    updates = [
        update
        async for update in conversation.setup.load(choice or PairChoice("/m/target", "/m/draft"))
    ]
    assert isinstance(updates[-1], Loaded)
    return updates


async def read(updates: AsyncIterator[Any]) -> list[Any]:
    """Everything that comes."""
    return [update async for update in updates]


def text(updates: Sequence[Update], *, reasoning: bool = False) -> str:
    """What the pieces add up to."""
    pieces = [each for each in updates if isinstance(each, TextPiece)]
    return "".join(piece.text for piece in pieces if piece.reasoning == reasoning)


def told(updates: Sequence[Update]) -> list[str]:
    return [each.line for each in updates if isinstance(each, ChatNotice)]


def ended(updates: Sequence[Update]) -> Turn:
    """The reply; everything is in order."""
    assert isinstance(updates[0], Began)
    assert isinstance(updates[-1], Ended)
    assert updates[0].reply.id == updates[-1].reply.id
    return updates[-1].reply


def asked(engine: ScriptedEngine, number: int = -1) -> list[tuple[str, str]]:
    """What the engine was asked."""
    messages: Any = engine.requests[number].messages
    return [(message["role"], message["content"]) for message in messages]


async def eventually(condition: Callable[[], object]) -> None:
    """Let everything else go on until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


class Reading:
    """A reply that is read while the test goes on."""

    def __init__(self, updates: AsyncIterator[Update]) -> None:
        self.updates: list[Update] = []
        self._arrived = asyncio.Condition()
        self.task = asyncio.create_task(self._read(updates))

    async def until(self, condition: Callable[[list[Update]], object]) -> list[Update]:
        """Wait until what came fulfils a condition."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: condition(self.updates))
        return self.updates

    async def text(self, expected: str) -> None:
        """Wait until so much has been said."""
        await self.until(lambda updates: text(updates) == expected)

    async def all(self) -> list[Update]:
        """Wait until the reply is over."""
        async with asyncio.timeout(PATIENCE_S):
            await self.task
        return self.updates

    async def _read(self, updates: AsyncIterator[Update]) -> None:
        async for update in updates:
            async with self._arrived:
                self.updates.append(update)
                self._arrived.notify_all()


@asynccontextmanager
async def reading(updates: AsyncIterator[Update]) -> AsyncIterator[Reading]:
    """Read a reply beside; it has begun."""
    it = Reading(updates)
    try:
        await it.until(len)
        yield it
    finally:
        it.task.cancel()
