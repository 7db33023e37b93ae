"""The turns on the screen, and replies as they stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from macspec.errors import MacspecError

from .chat.conversation import Conversation
from .chat.turns import Began, ChatNotice, Dropped, Ended, TextPiece, Turn, Update, Withdrawn
from .screens.main import Main


class Feed:
    """Keeps the transcript of a screen as the conversation is.

    Args:
        status: shows a line for a moment, with its severity.
        changed: called when title, numbers or keys may be others.
    """

    def __init__(
        self,
        main: Main,
        conversation: Conversation,
        status: Callable[[str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self._main, self._conversation = main, conversation
        self._status, self._changed = status, changed
        self._shown: tuple[int, ...] = ()
        """The turns in the transcript."""

    async def show(self) -> None:
        """Show the conversation's turns anew."""
        turns = self._conversation.turns
        self._shown = tuple(turn.id for turn in turns)
        await self._main.transcript.show(turns)
        self._main.set_class(not turns, "-empty")
        self._changed()

    def notice(self, line: str, severity: str = "information") -> None:
        """A line in the transcript; what is wrong, or would be out of view, is a status too."""
        transcript = self._main.transcript
        transcript.note(line)
        if not transcript.display or severity != "information":
            self._status(line, severity)

    async def stream(
        self, updates: AsyncIterator[Update], give_back: Callable[[], None] = lambda: None
    ) -> None:
        """Show a reply as it streams; what cannot be sent is to be given back."""
        began = False
        try:
            async for update in updates:
                began = began or isinstance(update, Began)
                await self._see(update)
                if isinstance(update, Withdrawn):
                    give_back()
                    raise MacspecError(f"not sent: {update.line}")
        except MacspecError:
            if not began:
                give_back()
            raise
        finally:
            self._changed()

    async def _see(self, update: Update) -> None:
        transcript = self._main.transcript
        match update:
            case TextPiece():
                transcript.feed(update)
            case Began(prompt, reply):
                await self._begin([turn for turn in (prompt, reply) if turn is not None])
            case Dropped():
                self._update_turns()
            case Ended(turn):
                await transcript.end(turn)
                self._update_turns()
            case Withdrawn():
                await self.show()
            case ChatNotice(line, severity):
                self.notice(line, severity)

    async def _begin(self, new: list[Turn]) -> None:
        """Show the path that leads to a new reply, and begin it."""
        transcript, turns = self._main.transcript, self._conversation.turns
        added = {turn.id for turn in new}
        before = tuple(turn.id for turn in turns if turn.id not in added)
        if before != self._shown:
            await transcript.show([turn for turn in turns if turn.id in before])
        elif transcript.chosen is not None:
            transcript.choose(None)
        self._shown = (*before, *(turn.id for turn in new))
        self._main.remove_class("-empty")
        for turn in new:
            await transcript.begin(turn)
        self._update_turns()
        self._changed()

    def _update_turns(self) -> None:
        for turn in self._conversation.turns:
            self._main.transcript.update_turn(turn)
