"""What every part of line mode has at hand, and how a reply is written line by line."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import AsyncIterator

from macspec.config import Config
from macspec.plaintext import one_line
from macspec.store import COMPLETE, CUT_OFF, STOPPED
from macspec.terminal import Output, say
from macspec.worker import PairChoice

from .actions import Situation
from .chat.conversation import Conversation
from .chat.turns import ChatNotice, Dropped, Ended, TextPiece, Turn, Update
from .linereader import Reader

ENDS = {
    "length": "the reply is as long as --max-tokens allows; /continue goes on",
    "context": "the context is full; /new begins a new conversation",
}


class LineBase:
    """A conversation on standard input and output, without any drawing.

    What was asked for goes to standard output: replies, lists, numbers. All else is said on
    standard error, a sentence a line.

    Args:
        conversation: the conversation.
        config: the settings.
        choice: the pair to load at first.
        reader: where messages come from.
    """

    def __init__(
        self, conversation: Conversation, config: Config, choice: PairChoice, reader: Reader
    ) -> None:
        self.conversation, self.config, self.choice, self.reader = (
            conversation,
            config,
            choice,
            reader,
        )
        self.output = Output()
        self.failures = 0
        """Messages and commands that came to nothing."""
        self.left = False
        """Whether the user wants to leave."""
        self.begin = ""
        """What the next message begins with."""
        self.editing: int | None = None
        """The turn whose place the next message takes."""
        self._written = False
        self._at_start = True

    def situation(self) -> Situation:
        """What is going on."""
        turns = self.conversation.turns
        return Situation(
            busy=self.conversation.busy,
            turns=bool(turns),
            replied=any(turn.role == "assistant" for turn in turns),
            chat=self.conversation.chat is not None,
        )

    @property
    def unoffered(self) -> str:
        """What is typed elsewhere and not sent, and cannot be gone on with here."""
        return "" if self.reader.can_offer(self.conversation.unsent) else self.conversation.unsent

    def offer_unsent(self) -> None:
        """Let the next message begin with what was typed and not sent."""
        if self.reader.can_offer(self.conversation.unsent):
            self.begin = self.conversation.unsent

    def say(self, line: str) -> None:
        """A sentence on standard error, on a line of its own."""
        self._close_line()
        say(line)

    def print(self, line: str = "") -> None:
        """A line that was asked for; a terminal gets it in lines that are not too wide."""
        text = one_line(line)
        if self.output.terminal:
            text = textwrap.fill(text, max(shutil.get_terminal_size().columns - 1, 20))
        self.output.text(f"{text}\n")
        self._written = True

    def print_text(self, text: str) -> None:
        """A text of several lines that was asked for."""
        self._put(text)
        self._close_line()

    async def loaded(self) -> None:
        """Wait until the pair is there, or is not to be had."""
        raise NotImplementedError

    async def reply(self, updates: AsyncIterator[Update]) -> None:
        """Write a reply while it comes."""
        await self.loaded()
        if self._written and not self.output.terminal:
            self.output.text("\n")
        reasoning = False
        async for update in updates:
            match update:
                case TextPiece(text, _, True):
                    if not reasoning:
                        reasoning = True
                        self._reason()
                    if self.config.app.reasoning:
                        self._put(text)
                case TextPiece(text):
                    if reasoning:
                        reasoning = False
                        self._answer()
                    self._put(text)
                case ChatNotice(line):
                    self.say(line)
                case Dropped(turns):
                    self.say(
                        f"the oldest {len(turns)} turns do not fit into the context any more: the "
                        "model does not see them"
                    )
                case Ended(turn):
                    self._close_line()
                    self._say_how(turn)

    def show(self, turn: Turn) -> None:
        """A turn that was written earlier, with who said it."""
        who = "You" if turn.role != "assistant" else one_line(turn.model or "The model")
        versions = f", version {turn.sibling} of {turn.siblings}" if turn.siblings > 1 else ""
        self.print(f"{who}{versions}:")
        self.print_text(turn.text)

    def _reason(self) -> None:
        if self.config.app.reasoning:
            self.print("Reasoning:")
        else:
            more = "; /think off leaves that out" if self.conversation.thinks else ""
            self.say(f"it reasons before it answers{more}")

    def _answer(self) -> None:
        self._close_line()
        if self.config.app.reasoning:
            self.print()
            self.print("Answer:")

    def _say_how(self, turn: Turn) -> None:
        """How a reply ended, where it did not by itself."""
        if turn.state == CUT_OFF:
            self.failures += 1
            self.say("the reply was cut off; what came is kept, and /continue goes on")
        elif turn.state == STOPPED:
            self.say("stopped; what came is kept, and /continue goes on")
        elif turn.state == COMPLETE and turn.reason in ENDS:
            self.say(ENDS[turn.reason])

    def _put(self, text: str) -> None:
        if text:
            self.output.text(text)
            self._written, self._at_start = True, text.endswith("\n")

    def _close_line(self) -> None:
        if not self._at_start:
            self.output.text("\n")
            self._at_start = True
