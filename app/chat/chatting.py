"""What is done with a conversation as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from macspec.plaintext import one_line
from macspec.store import Chat, model_name
from macspec.worker import Tuning

from .chats import ChatList
from .state import State


class Chatting(State):
    """Opening, naming, copying, deleting, and what each conversation sets for itself."""

    def open(self, id: int) -> None:
        """Stand where a conversation was left."""
        self._idle()
        self._tree.open(id)
        self._live.elsewhere()

    def new(self) -> None:
        """A new conversation; the store has it once something is said or typed."""
        self._idle()
        self._tree.clear()
        self._live.elsewhere()

    def reopen_last(self) -> bool:
        """Open the conversation that was changed last; whether there was one."""
        last = self.store.last_chat()
        if last is not None:
            self.open(last.id)
        return last is not None

    def refresh(self) -> None:
        """Look again at a conversation that was changed elsewhere."""
        if not self.busy:
            self._tree.reload()

    def rename(self, title: str) -> Chat:
        """Give this conversation a title."""
        self._tree.chat = self.store.rename(self._there().id, one_line(title))
        return self._tree.chat

    def fork(self, turn_id: int) -> Chat:
        """Go on in a copy of everything up to a turn; this conversation stays as it is."""
        self._idle()
        chat = self.store.fork(self._tree.message(turn_id).id)
        self._tree.open(chat.id)
        return chat

    def delete(self, id: int | None = None) -> Chat:
        """Delete a conversation; None: this one. ``undo`` brings it back."""
        here = None if self.chat is None else self.chat.id
        id = self._there().id if id is None else id
        if id == here:
            self._idle()
        (chat,) = self.store.delete(id)
        if id == here:
            self._tree.clear()
            self._live.elsewhere()
        return chat

    def undo(self) -> list[Chat]:
        """Bring back what the last deletion took."""
        return self.store.undo()

    def step(self, turn_id: int, by: int) -> None:
        """Show another version of a turn, and what follows it."""
        self._idle()
        self._tree.step(turn_id, by)

    def export(self, name: str) -> Path:
        """Write this conversation to a new file: all of it as ``.json``, else as Markdown."""
        return ChatList(self.store).export(self._there().id, name)

    def set_system(self, text: str) -> None:
        """The system prompt of this conversation, from the next reply on."""
        self._tree.set_system(text)

    async def set_sampling(self, sampling: Mapping[str, Any]) -> Tuning:
        """What this conversation sets, from the next round on; the rest is as in the settings."""
        tuning = await self._dials.set_sampling(sampling)
        self._tree.set_sampling(dict(sampling))
        return tuning

    def set_think(self, think: str | None) -> str | None:
        """Reasoning on or off, or None for the model's default, from the next reply on.

        Returns:
            Why that changes nothing with the pair that answers; None: it does.
        """
        self.think = think
        return self.think_fixed

    @property
    def thinks(self) -> bool:
        """Whether reasoning can be switched on and off here, as far as is known."""
        return self._live.pair is None or self._live.pair.thinks

    @property
    def think_fixed(self) -> str | None:
        """Why what is set for reasoning changes nothing here; None: it does, or nothing is set."""
        pair = self._live.pair
        if self.think is None or pair is None or pair.thinks:
            return None
        return (
            f"{model_name(pair.target)} has no switch for reasoning: {self.think} is kept for "
            "models that have one"
        )

    def save_unsent(self, text: str) -> None:
        """Keep what is typed and not sent."""
        if text == self.unsent or (self.chat is None and not text.strip()):
            return
        self._tree.chat = self.store.set_unsent(self._tree.begun().id, text)
