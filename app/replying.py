"""Asking, and showing what comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from textual import on

from macspec.errors import MacspecError

from .base import Base
from .chat.turns import Began, Changed, ChatNotice, Dropped, Ended, TextPiece, Turn, Update
from .prompt.prompt import Prompt
from .slash import Command, parse

BUSY = "a reply is being written: wait for it, or stop it with Esc"


class Replying(Base):
    """Prompts that are sent, and the replies to them."""

    _shown: tuple[int, ...] = ()
    """The turns in the transcript."""

    @on(Prompt.Submitted)
    def _sent(self, event: Prompt.Submitted) -> None:
        event.stop()
        try:
            command = parse(event.text)
            if command is None:
                self.reply(self.conversation.ask(self._whole(event)), event.text)
            else:
                self.do_command(command)
        except MacspecError as error:
            self.main.prompt.give_back(event.text)
            self.say(str(error), "warning")

    @on(Prompt.Edited)
    def _resent(self, event: Prompt.Edited) -> None:
        event.stop()
        try:
            self.reply(self.conversation.edit(event.turn_id, self._whole(event)), event.text)
        except MacspecError as error:
            self.edit_turn(event.turn_id, event.text, changed=True)
            self.say(str(error), "warning")

    def _whole(self, event: Prompt.Submitted | Prompt.Edited) -> str:
        """A message with the files that it names.

        Raises:
            MacspecError: a file cannot go into it, or a reply is being written.
        """
        if self.conversation.busy:
            raise MacspecError(BUSY)
        message = event.message()
        for notice in message.notices:
            self.say(notice, "warning")
        return message.text

    def do_command(self, command: Command) -> None:
        """Carry out a slash command."""
        raise NotImplementedError

    def edit_turn(self, turn_id: int, text: str, *, changed: bool = False) -> None:
        """Put a turn of the user's into the prompt, to be sent again.

        Args:
            changed: the user has typed some of it.
        """
        asked = [turn.id for turn in self.conversation.turns if turn.role != "assistant"]
        what = f"message {asked.index(turn_id) + 1}"
        self.main.prompt.edit(turn_id, text, what, changed=changed)

    def reply(self, updates: AsyncIterator[Update], typed: str = "") -> None:
        """Show a reply as it comes.

        Args:
            typed: what goes back into the prompt if it cannot be asked.
        """
        self.begin(self._reply(updates, typed), "reply")

    async def _reply(self, updates: AsyncIterator[Update], typed: str) -> None:
        transcript, began = self.main.transcript, False
        try:
            async for update in updates:
                match update:
                    case TextPiece():
                        transcript.feed(update)
                    case Began(prompt, reply):
                        began = True
                        await self._begin(prompt, reply)
                    case ChatNotice(line, severity):
                        self.told(line, severity)
                    case Dropped():
                        self._update_turns()
                    case Ended(turn):
                        await transcript.end(turn)
                        self._update_turns()
                    case Changed(turn):
                        transcript.update_turn(turn)
        except MacspecError:
            if typed and not began:
                self.main.prompt.give_back(typed)
            raise
        finally:
            self.show_state()

    def told(self, line: str, severity: str = "information") -> None:
        """Something that matters later too: it stays in the transcript."""
        transcript = self.main.transcript
        transcript.note(line)
        unseen = not transcript.display
        if unseen or (severity != "information" and not transcript.following):
            self.say(line, severity)

    async def _begin(self, prompt: Turn | None, reply: Turn) -> None:
        """Show the path that leads to a new reply, and begin it."""
        new = [turn for turn in (prompt, reply) if turn is not None]
        ids = tuple(turn.id for turn in self.conversation.turns)
        before = tuple(id for id in ids if id not in [turn.id for turn in new])
        transcript = self.main.transcript
        if before != self._shown:
            await transcript.show([turn for turn in self.conversation.turns if turn.id in before])
        elif self.chosen is not None:
            transcript.choose(None)
        self.chosen = None
        self._shown = (*before, *(turn.id for turn in new))
        self.main.remove_class("-empty")
        for turn in new:
            await transcript.begin(turn)
        self._update_turns()
        self.show_state()

    async def show_turns(self) -> None:
        turns = self.conversation.turns
        self._shown = tuple(turn.id for turn in turns)
        self.chosen = None
        await self.main.transcript.show(turns)
        self.main.set_class(not turns, "-empty")
        self.show_state()

    def _update_turns(self) -> None:
        for turn in self.conversation.turns:
            self.main.transcript.update_turn(turn)
