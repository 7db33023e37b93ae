"""What commands need of a front end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from macspec.events import Notice
from macspec.worker import LoadProgress, PairChoice

from .chat.chatlist import Opening
from .chat.comparison import Comparison
from .chat.conversation import Conversation
from .chat.picker import ModelPicker
from .chat.turns import Update
from .keys import Keys


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the user, for a line of text."""

    text: str
    title: str
    value: str
    """What the answer begins with."""
    usage: str = ""
    """Where nobody can be asked, how to give the answer; empty: take ``value``."""


class Dialogs(Protocol):
    """How a front end asks the user."""

    async def ask(self, question: Question, check: Callable[[str], str]) -> None:
        """Ask until ``check`` says nothing of what is wrong with the answer."""

    async def edit_settings(self, field: str) -> None:
        """Show the system prompt and the sampling to edit them, from a field on: ``system``, or a
        sampling setting."""

    async def choose_pair(self, pairs: ModelPicker, *, guided: bool = False) -> PairChoice | None:
        """List the models, or propose the best pair; returns the pair to switch to, if any."""

    async def choose_chat(self, query: str | None) -> Opening | None:
        """List conversations, or those that match a query; returns the one to open, if any."""

    async def compare(self, found: AsyncIterator[Comparison]) -> None:
        """Run a comparison and show it."""


class View(Protocol):
    """A front end. ``MacspecApp`` and ``LineView`` are the two."""

    @property
    def own(self) -> Sequence[object]:
        """Those who have the commands that are all about this front end."""

    @property
    def conversation(self) -> Conversation: ...

    @property
    def dialogs(self) -> Dialogs: ...

    @property
    def keys(self) -> Keys | None:
        """The keys of actions; None: there are only slash commands."""

    @property
    def chosen(self) -> int | None:
        """The turn that the user selected; None: the last one is meant."""

    # Telling.

    def status(self, line: str, severity: str = "information") -> None:
        """Show a line for a moment."""

    def notice(self, line: str, severity: str = "information") -> None:
        """Show a line that stays readable in the conversation."""

    def loading(self, event: Notice | LoadProgress) -> None:
        """Show how the loading of a pair goes on."""

    # Replies.

    async def reply(self, updates: AsyncIterator[Update], typed: str = "") -> None:
        """Show a reply as it streams; ``typed`` goes back into the prompt if it cannot be sent."""

    def edit_turn(self, turn_id: int, text: str) -> None:
        """Let the user edit a message and resend it."""

    async def show_version(self, place: int) -> None:
        """Show the turns from a place of the path on, after a change to another version."""

    def copy(self, text: str, what: str) -> None:
        """Copy a text to the clipboard, and say how."""

    # Conversations.

    def keep_typed(self, *, along: bool = False) -> None:
        """Save what is typed with the conversation that is left; or take it ``along``."""

    async def show_chat(self) -> None:
        """Show another conversation, as it was left."""

    async def redraw(self) -> None:
        """Show this conversation, whose turns have changed."""

    def show_match(self, turn_id: int, words: str) -> None:
        """Show where a turn has some words, and mark them."""

    async def adjust(self, what: str, value: object) -> None:
        """Let the user adjust ``depth`` or ``temperature``, which has this value now."""
