"""Line mode's view of a conversation: text on standard output, without any drawing.

What was asked for goes to standard output: replies, lists, numbers. Everything else goes to
standard error, a sentence a line.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from macspec.config.schema import BUILT_IN, NONE
from macspec.errors import BadOptionError
from macspec.events import Notice
from macspec.models.progress import size
from macspec.plaintext import one_line
from macspec.store import COMPLETE, CUT_OFF, STOPPED, title_of
from macspec.terminal import Output, say
from macspec.worker import LoadProgress, PairChoice

from . import outside
from .actions import BY_GROUP
from .chat.chatlist import Opening, find_chats, when
from .chat.comparison import Comparison
from .chat.conversation import Conversation
from .chat.introduction import PRIVATE, WHAT, proposal
from .chat.picker import ModelPicker
from .chat.turns import ChatNotice, Dropped, Ended, TextPiece, Turn, Update, Withdrawn
from .commands import Commands
from .linereader import Reader
from .view import Dialogs, Question

LISTED = 20
"""Conversations of a list."""

TENTHS = 10
"""How often a download reports its progress."""

ENDS = {
    "length": "the reply reached --max-tokens; /continue goes on",
    "context": "the context is full; /new starts a new conversation",
}


class LineView:
    """A view of commands that is lines of text.

    Args:
        reader: where messages come from.
        loaded: waits for the first pair; a reply needs it.
    """

    keys = None
    chosen = None

    def __init__(
        self,
        conversation: Conversation,
        pairs: Sequence[PairChoice],
        reader: Reader,
        loaded: Callable[[], Awaitable[None]],
    ) -> None:
        self.conversation, self.reader = conversation, reader
        self.commands = Commands(self, pairs)
        self.output = Output()
        self.failures = 0
        """Messages and commands that failed."""
        self.left = False
        """Whether the user wants to leave."""
        self.draft = ""
        """What the next message begins with."""
        self.editing: int | None = None
        """The turn that the next message replaces."""
        self._loaded = loaded
        self._tenth = -1
        self._written = False
        self._at_start = True

    @property
    def dialogs(self) -> Dialogs:
        return self

    @property
    def own(self) -> Sequence[object]:
        return (self,)

    # Telling.

    def status(self, line: str, severity: str = "information") -> None:
        """A sentence on standard error, on a line of its own."""
        self._close_line()
        say(line)

    def notice(self, line: str, severity: str = "information") -> None:
        self.failures += severity == "error"
        self.status(line)

    def print(self, line: str = "") -> None:
        """A line that was asked for; a terminal gets it in lines that are not too wide."""
        text = one_line(line)
        if self.output.width is not None:
            text = textwrap.fill(text, self.output.width)
        self.output.text(f"{text}\n")
        self._written = True

    def print_text(self, text: str) -> None:
        """A text of several lines that was asked for."""
        self._put(text)
        self._close_line()

    def loading(self, event: Notice | LoadProgress) -> None:
        match event:
            case Notice(message):
                self.status(message)
            case LoadProgress("downloading", done, total, model) if total:
                if self._tenth != (tenth := done * TENTHS // total):
                    self._tenth = tenth
                    self.status(f"downloading {model}: {size(done)} of {size(total)}")

    def _put(self, text: str) -> None:
        if text:
            self.output.text(text)
            self._written, self._at_start = True, text.endswith("\n")

    def _close_line(self) -> None:
        if not self._at_start:
            self.output.text("\n")
            self._at_start = True

    # Replies.

    async def reply(self, updates: AsyncIterator[Update], typed: str = "") -> None:
        await self._loaded()
        if self._written and not self.output.terminal:
            self.output.text("\n")
        reasoning = False
        async for update in updates:
            match update:
                case TextPiece(text):
                    if reasoning != update.reasoning:
                        reasoning = update.reasoning
                        self._begin_part(reasoning)
                    if self.conversation.config.app.reasoning or not reasoning:
                        self._put(text)
                case ChatNotice(line):
                    self.status(line)
                case Dropped(turns):
                    self.status(
                        f"the oldest {len(turns)} turns no longer fit into the context: the model "
                        "does not see them"
                    )
                case Ended(turn):
                    self._close_line()
                    self._say_how(turn)
                case Withdrawn(line):
                    self.notice(f"not sent: {line}", "error")
                    if self.reader.can_offer(typed):
                        self.draft = typed

    def _begin_part(self, reasoning: bool) -> None:
        """Say that the model reasons from here on, or answers."""
        self._close_line()
        if self.conversation.config.app.reasoning:
            if not reasoning:
                self.print()
            self.print("Reasoning:" if reasoning else "Answer:")
        elif reasoning:
            thinking = self.conversation.thinking
            more = "; /think low shortens that" if "low" in thinking else ""
            more = "; /think off skips that" if "off" in thinking else more
            self.status(f"the model reasons before it answers{more}")

    def _say_how(self, turn: Turn) -> None:
        """How a reply ended, where it did not by itself."""
        if turn.state == CUT_OFF:
            self.failures += 1
            self.status("the reply was cut off; what was generated is kept, and /continue goes on")
        elif turn.state == STOPPED:
            self.status("stopped; what was generated is kept, and /continue goes on")
        elif turn.state == COMPLETE and turn.reason in ENDS:
            self.status(ENDS[turn.reason])

    def edit_turn(self, turn_id: int, text: str) -> None:
        if not self.reader.can_offer(text):
            raise BadOptionError("write the new text after /edit")
        self.draft, self.editing = text, turn_id
        self.status("edit the message and press Enter to resend it; an empty line cancels")

    async def show_version(self, place: int) -> None:
        for turn in self.conversation.turns[place:]:
            self.show(turn)

    def show(self, turn: Turn) -> None:
        """A turn that was written earlier, with who said it."""
        who = "You" if turn.role != "assistant" else one_line(turn.model or "The model")
        versions = f", version {turn.sibling} of {turn.siblings}" if turn.siblings > 1 else ""
        self.print(f"{who}{versions}:")
        self.print_text(turn.text)

    def copy(self, text: str, what: str) -> None:
        self.status(f"copied {what} ({outside.put(text, None)})")

    async def compare(self, found: AsyncIterator[Comparison]) -> None:
        from .screens.compare import sentences

        await self._loaded()
        self.status("answering the last message again, with plain and speculative decoding in turn")
        newest, told = None, 0
        async for newest in found:
            number = newest.plain.replies + newest.speculative.replies + 1
            if newest.doing and number > told:
                told = number
                self.status(f"reply {number} of {newest.planned}, {newest.doing}")
        if newest is not None:
            for sentence in sentences(newest):
                self.print(sentence)

    # Conversations.

    def keep_typed(self, *, along: bool = False) -> None:
        pass

    async def redraw(self) -> None:
        pass

    async def show_chat(self) -> None:
        """The last two turns, and what was typed and not sent."""
        chat = self.conversation.chat
        if chat is not None:
            self.status(f"conversation {chat.id}: {self.named()}")
            for turn in self.conversation.turns[-2:]:
                self.show(turn)
            self.offer_unsent()

    def named(self) -> str:
        """The conversation's title and length."""
        assert self.conversation.chat is not None
        count = len(self.conversation.turns)
        turns = "1 turn" if count == 1 else f"{count} turns"
        return f"{title_of(self.conversation.chat)}, with {turns}"

    @property
    def unoffered(self) -> str:
        """What is typed elsewhere and not sent, and cannot be continued here."""
        unsent = self.conversation.unsent
        return "" if self.reader.can_offer(unsent) else unsent

    def offer_unsent(self) -> None:
        """Let the next message begin with what was typed and not sent."""
        if self.reader.can_offer(self.conversation.unsent):
            self.draft = self.conversation.unsent

    def show_match(self, turn_id: int, words: str) -> None:
        for turn in self.conversation.turns:
            if turn.id == turn_id:
                self.show(turn)

    async def choose_chat(self, query: str | None) -> Opening | None:
        if query == "":
            raise BadOptionError("write the words to find after /search")
        store = self.conversation.store
        rows = find_chats(store, query or "", LISTED)
        for row in rows:
            chat, changed = row.chat, when(row.chat.changed, time.time())
            self.print(f"{chat.id}  {title_of(chat)} ({changed}, {row.about})")
            if row.who:
                self.print(f"    {row.who}: {''.join(text for text, _ in row.excerpt)}")
        nothing = "no conversations yet" if query is None else f"no conversation has {query}"
        self.status("/chats NUMBER opens one" if rows else nothing)
        return None

    # Questions: nobody is asked here, so that each is answered by what is known.

    async def ask(self, question: Question, check: Callable[[str], str]) -> None:
        if wrong := question.usage or check(question.value):
            raise BadOptionError(wrong)

    async def edit_settings(self, field: str) -> None:
        it = self.conversation
        if field != "system":
            for name, value in it.setup.desired.sampling.items():
                own = " (set for this conversation)" if name in it.tree.sampling else ""
                self.print(f"{name} {'random' if value is None else value}{own}")
        elif it.tree.system:
            self.print_text(it.tree.system)
        else:
            self.status("no system prompt; /system TEXT sets one")

    async def choose_pair(self, pairs: ModelPicker, *, guided: bool = False) -> PairChoice | None:
        self.status("scanning this machine for models")
        async for _ in pairs.scan.run(pairs.folders):
            pass
        if guided and (best := pairs.best()) is not None:
            target, draft = best
            size = pairs.to_download(target, draft) if pairs.absent(target, draft) else ""
            self.status(f"downloading {size}" if size else f"loading {target.name}")
            return pairs.choice(target.model, draft.model if draft else None)
        for offer in pairs.targets():
            named = offer.pairs[0].name if offer.absent and offer.pairs else offer.model
            self.print(f"{named or offer.name}: {offer.facts}")
        self.status("/models PAIR or /models TARGET DRAFT switches, and downloads what is missing")
        return None

    async def adjust(self, what: str, value: object) -> None:
        self.print(f"{what} {value}")

    # Commands that are about line mode.

    async def do_help(self, argument: str) -> None:
        self.print("A line that begins with a slash is a command; anything else is a message.")
        self.print("@FILE in a message includes a file; a backslash at the end continues the line.")
        for group, every in BY_GROUP.items():
            actions = [it for it in every if not it.screen]
            if actions:
                self.print()
                self.print(group)
            for action in actions:
                self.print(f"{action.usage}: {action.about}")

    async def do_stats(self, argument: str) -> None:
        from .panel.panelrows import facts

        for line in facts(self.conversation.panel()):
            self.print(line)

    async def do_about(self, argument: str) -> None:
        for line in (WHAT, *proposal(), PRIVATE):
            self.print(line)

    async def do_report(self, argument: str) -> None:
        from macspec.diagnostics import report

        choice = self.commands.loading.choice
        report(self.output, target=choice.target or BUILT_IN, draft=choice.draft or NONE)

    async def do_leave(self, argument: str) -> None:
        self.left = True
