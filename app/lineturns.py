"""Line mode: what is done with single turns, and the numbers."""

from __future__ import annotations

from pathlib import Path

from macspec.errors import BadOptionError

from . import message as files
from . import outside as clipboard
from .chat.turns import Turn
from .linebase import LineBase
from .linecompare import comparison_sentences
from .linenumbers import sentences


class LineTurns(LineBase):
    """Stop, again, otherwise, copy."""

    async def do_stop(self, argument: str) -> None:
        self.conversation.stop()

    async def do_regenerate(self, argument: str) -> None:
        await self.reply(self.conversation.regenerate())

    async def do_edit(self, argument: str) -> None:
        turn = self._last("user", "raw")
        if argument:
            await self.reply(self.conversation.edit(turn.id, argument))
        elif self.reader.can_offer(turn.text):
            self.begin, self.editing = turn.text, turn.id
            self.say("change the message and send it with Enter; an empty one leaves it")
        else:
            raise BadOptionError("write the new text after /edit")

    async def do_continue(self, argument: str) -> None:
        await self.reply(self.conversation.resume(self._last("assistant").id))

    async def do_older(self, argument: str) -> None:
        self._step(-1)

    async def do_newer(self, argument: str) -> None:
        self._step(1)

    def _step(self, by: int) -> None:
        turns = self.conversation.turns
        several = [place for place, turn in enumerate(turns) if turn.siblings > 1]
        if not several:
            raise BadOptionError("there is only this version; /regenerate or /edit makes another")
        turn = turns[several[-1]]
        if not 1 <= turn.sibling + by <= turn.siblings:
            side = "first" if by < 0 else "last"
            self.say(f"this is the {side} of {turn.siblings} versions")
            return
        self.conversation.step(turn.id, by)
        for each in self.conversation.turns[several[-1] :]:
            self.show(each)

    async def do_copy(self, argument: str) -> None:
        turns = [turn for turn in self.conversation.turns if turn.role == "assistant"]
        turn = (turns or list(self.conversation.turns))[-1]
        if not turn.text:
            raise BadOptionError("there is no text to copy")
        if argument:
            text = turn.text if turn.text.endswith("\n") else f"{turn.text}\n"
            try:
                path = files.write(Path(argument), text)
            except FileExistsError as error:
                raise BadOptionError(f"{error}: choose another name") from None
            self.say(f"it is in {path}")
        else:
            self._copy(turn.text)

    async def do_copy_code(self, argument: str) -> None:
        from .transcript.codeblocks import code_blocks

        blocks = code_blocks(self._last("assistant").text)
        if not blocks:
            raise BadOptionError("there is no block of code in this reply")
        number = len(blocks)
        if argument:
            if not argument.isdecimal() or not 1 <= int(argument) <= len(blocks):
                raise BadOptionError(f"the reply has blocks 1 to {len(blocks)}, not {argument}")
            number = int(argument)
        self._copy(blocks[number - 1].text)

    def _copy(self, text: str) -> None:
        self.say(f"copied with {clipboard.put(text, None)}")

    async def do_stats(self, argument: str) -> None:
        for sentence in sentences(self.conversation.panel()):
            self.print(sentence)

    async def do_compare(self, argument: str) -> None:
        await self.loaded()
        self.say("the last message is answered again, plain and speculative in turns")
        found, doing = None, ""
        async for found in self.conversation.compare():
            if found.doing and found.doing != doing:
                doing = found.doing
                done = found.plain.replies + found.speculative.replies
                self.say(f"reply {done + 1} of {found.planned}, {doing}")
        if found is not None:
            for sentence in comparison_sentences(found):
                self.print(sentence)

    def _last(self, *roles: str) -> Turn:
        for turn in reversed(self.conversation.turns):
            if turn.role in roles:
                return turn
        raise BadOptionError("there is no such message yet")
