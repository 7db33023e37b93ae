"""What is done with single turns: stop, again, otherwise, copy."""

from __future__ import annotations

from pathlib import Path

from textual import on

from macspec.errors import BadOptionError

from . import message as files
from . import outside as clipboard
from .chat.turns import Turn
from .replying import Replying
from .transcript.codeblocks import code_blocks
from .transcript.transcript import TurnChosen


class Turning(Replying):
    """Actions on the chosen turn, or on the last one that they make sense for."""

    @on(TurnChosen)
    def _went_to(self, event: TurnChosen) -> None:
        event.stop()
        self.chosen = event.turn_id
        self.show_state()

    def _turn(self, *roles: str) -> Turn | None:
        """The chosen turn, if it has one of the roles; else the last one that has."""
        fitting = [turn for turn in self.conversation.turns if not roles or turn.role in roles]
        chosen = [turn for turn in fitting if turn.id == self.chosen]
        return next(iter(chosen or fitting[-1:]), None)

    async def do_stop(self, argument: str) -> None:
        if self.conversation.busy:
            self.conversation.stop()
        else:
            self.conversation.cancel_load()

    async def do_regenerate(self, argument: str) -> None:
        turn = self._turn("assistant")
        self.reply(self.conversation.regenerate(None if turn is None else turn.id))

    async def do_edit(self, argument: str) -> None:
        turn = self._turn("user", "raw")
        if turn is None:
            raise BadOptionError("there is no message of yours to change")
        if argument:
            self.reply(self.conversation.edit(turn.id, argument), argument)
        else:
            self.edit_turn(turn.id, turn.text)

    async def do_continue(self, argument: str) -> None:
        turn = self._turn("assistant")
        assert turn is not None
        self.reply(self.conversation.resume(turn.id))

    async def do_older(self, argument: str) -> None:
        await self._step(-1)

    async def do_newer(self, argument: str) -> None:
        await self._step(1)

    async def _step(self, by: int) -> None:
        turns = self.conversation.turns
        chosen = [turn for turn in turns if turn.id == self.chosen]
        several = [turn for turn in turns if turn.siblings > 1]
        turn = (chosen or several[-1:] or turns[-1:])[0]
        if turn.siblings < 2:
            raise BadOptionError("there is only this version; regenerate or edit makes another")
        if not 1 <= turn.sibling + by <= turn.siblings:
            side = "first" if by < 0 else "last"
            self.say(f"this is the {side} of {turn.siblings} versions")
            return
        place = [each.id for each in turns].index(turn.id)
        self.conversation.step(turn.id, by)
        await self.show_turns()
        now = self.conversation.turns[place]
        self.main.transcript.choose(now.id)
        self.say(f"version {now.sibling} of {now.siblings}")

    async def do_copy(self, argument: str) -> None:
        turn = next((turn for turn in self.conversation.turns if turn.id == self.chosen), None)
        turn = turn or self._turn("assistant") or self.conversation.turns[-1]
        if not turn.text:
            raise BadOptionError("there is no text to copy")
        what = "the reply" if turn.role == "assistant" else "the message"
        if argument:
            self._to_file(argument, turn.text, what)
        else:
            self.copy(turn.text, what)

    def _to_file(self, name: str, text: str, what: str) -> None:
        try:
            path = files.write(Path(name), text if text.endswith("\n") else f"{text}\n")
        except FileExistsError as error:
            raise BadOptionError(f"{error}: choose another name") from None
        self.say(f"{what} is in {path}")

    async def do_copy_code(self, argument: str) -> None:
        turn = self._turn("assistant")
        assert turn is not None
        blocks = code_blocks(turn.text)
        if not blocks:
            raise BadOptionError("there is no block of code in this reply")
        number = len(blocks)
        if argument:
            if not argument.isdecimal() or not 1 <= int(argument) <= len(blocks):
                raise BadOptionError(f"the reply has blocks 1 to {len(blocks)}, not {argument}")
            number = int(argument)
        which = "the block of code" if len(blocks) == 1 else f"block {number} of {len(blocks)}"
        self.copy(blocks[number - 1].text, which)

    async def do_copy_selection(self, argument: str) -> None:
        text = self.selected()
        if not text:
            raise BadOptionError("nothing is selected: drag over a text with the mouse first")
        self.copy(text, "the selection")

    def selected(self) -> str:
        """The text that is selected on the screen, or in the prompt."""
        return self.screen.get_selected_text() or self.main.prompt.area.selected_text

    def copy(self, text: str, what: str) -> None:
        """Copy a text, and say by which way, or why not."""
        try:
            self.say(f"copied {what} ({clipboard.copy(text, self)})")
        except clipboard.ClipboardError as error:
            self.say(str(error), "error")

    def copy_to_clipboard(self, text: str) -> None:
        """What Textual copies by itself goes the same way."""
        self.copy(text, "the selection")
