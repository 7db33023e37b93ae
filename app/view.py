"""What a command needs of the front end that carries it out: the screen, or line mode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from macspec.events import Notice
from macspec.worker import LoadProgress, PairChoice

from .actions import BY_ID, Situation
from .chat.comparison import Comparison
from .chat.conversation import Conversation
from .chat.picker import ModelPicker
from .chat.turns import Turn, Update
from .keys import Keys


class View(Protocol):
    """A front end. ``MacspecApp`` and ``LineView`` are the two."""

    @property
    def conversation(self) -> Conversation: ...

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
        """Show a reply as it streams.

        Args:
            typed: what to put back into the prompt if it cannot be sent.
        """

    def edit_turn(self, turn: Turn) -> None:
        """Let the user edit a message and resend it."""

    async def show_version(self, place: int) -> None:
        """Show the turns from a place of the path on, after a change to another version."""

    def copy(self, text: str, what: str) -> None:
        """Copy a text to the clipboard, and say how."""

    async def compare(self, found: AsyncIterator[Comparison]) -> None:
        """Run a comparison and show it."""

    # Conversations.

    def keep_typed(self, *, along: bool = False) -> None:
        """Save what is typed with the conversation that is left; or take it ``along``."""

    async def show_chat(self) -> None:
        """Show another conversation, as it was left."""

    async def redraw(self) -> None:
        """Show this conversation, whose turns have changed."""

    async def choose_chat(self, query: str | None) -> int | None:
        """List conversations, or those that match a query; returns the one to open, if any."""

    # Questions.

    async def ask(
        self, question: str, value: str, *, title: str, check: Callable[[str], str], usage: str
    ) -> None:
        """Ask for a line of text until ``check`` finds nothing wrong with it.

        Args:
            value: what to begin with.
            check: takes an answer and returns what is wrong with it; empty: nothing.
            usage: where nobody can be asked, how to give the answer; empty: take ``value``.
        """

    async def edit_settings(self, field: str) -> None:
        """Show, and let the user edit, the system prompt and the sampling.

        Args:
            field: ``system``, or the sampling setting to begin with.
        """

    async def choose_pair(self, pairs: ModelPicker) -> PairChoice | None:
        """List the models; returns the pair to switch to, if any."""

    async def adjust(self, what: str, value: object) -> None:
        """Let the user adjust ``depth`` or ``temperature``, which has this value now."""


def situation(conversation: Conversation) -> Situation:
    """What is going on in a conversation."""
    turns = conversation.turns
    return Situation(
        busy=conversation.busy,
        loading=conversation.panel().activity == "loading",
        turns=bool(turns),
        replied=any(turn.role == "assistant" for turn in turns),
        chat=conversation.chat is not None,
    )


def named(view: View, id: str) -> str:
    """An action as the user calls it: by its key, or by its command."""
    return f"/{BY_ID[id].slash}" if view.keys is None else view.keys.shown(id)
