"""Line mode: whole conversations, and what they set."""

from __future__ import annotations

from pathlib import Path

from macspec.config.schema import SETTINGS
from macspec.errors import BadOptionError

from .actions import SAMPLING, THINK
from .chat.chatlist import ChatList, ChatRow, file_name, title_of, when
from .linebase import LineBase

LISTED = 20
"""Conversations of a list."""


class LineChats(LineBase):
    """New, open, search, rename, fork, export, delete."""

    @property
    def chats(self) -> ChatList:
        """The store's conversations."""
        return ChatList(self.conversation.store)

    async def do_new(self, argument: str) -> None:
        self.conversation.new()
        self.say("a new conversation; the last one is kept")

    async def do_chats(self, argument: str) -> None:
        if argument:
            if not argument.isdecimal():
                raise BadOptionError(
                    f"{argument} is no number of a conversation; /chats lists them"
                )
            self.open_chat(int(argument))
            return
        rows = self.chats.listed(LISTED)
        for row in rows:
            self.print(self._line(row))
        self.say("/chats NUMBER opens one" if rows else "no conversations yet")

    async def do_search(self, argument: str) -> None:
        if not argument:
            raise BadOptionError("write the words to find after /search")
        rows = self.chats.found(argument, LISTED)
        for row in rows:
            self.print(self._line(row))
            if row.excerpt:
                self.print(f"    {row.who}: {''.join(text for text, _ in row.excerpt)}")
        self.say("/chats NUMBER opens one" if rows else "nothing is found")

    def _line(self, row: ChatRow) -> str:
        return f"{row.id}  {row.title} ({when(row.changed, self.chats.clock())}, {row.about})"

    def open_chat(self, id: int) -> None:
        """Go on with another conversation; its last two turns are shown."""
        self.conversation.open(id)
        self.say(f"this is conversation {id}, {self._named()}")
        for turn in self.conversation.turns[-2:]:
            self.show(turn)
        self.offer_unsent()

    def _named(self) -> str:
        assert self.conversation.chat is not None
        count = len(self.conversation.turns)
        turns = "1 turn" if count == 1 else f"{count} turns"
        return f"{title_of(self.conversation.chat)}, with {turns}"

    async def do_rename(self, argument: str) -> None:
        if not argument:
            raise BadOptionError("write the new title after /rename")
        self.say(f"renamed: {title_of(self.conversation.rename(argument))}")

    async def do_fork(self, argument: str) -> None:
        chat = self.conversation.fork(self.conversation.turns[-1].id)
        self.say(f"a copy up to here, conversation {chat.id}; the first one is as it was")

    async def do_export(self, argument: str) -> None:
        chat = self.conversation.chat
        assert chat is not None
        name = argument or file_name(title_of(chat), ".md")
        path = self.chats.export(chat.id, name)
        self.say(f"the conversation is in {Path(path).absolute()}")

    async def do_delete(self, argument: str) -> None:
        self.say(f"deleted {title_of(self.conversation.delete())}; /undo brings it back")

    async def do_undo(self, argument: str) -> None:
        self.open_chat(self.chats.undo())

    async def do_system(self, argument: str) -> None:
        if argument:
            self.conversation.set_system(argument)
            self.say("the system prompt of this conversation is changed")
        elif self.conversation.system:
            self.print_text(self.conversation.system)
        else:
            self.say("no system prompt; /system TEXT sets one")

    async def do_sampling(self, argument: str) -> None:
        if not argument:
            for name, value in self.conversation.tuning.sampling.items():
                own = " (of this conversation)" if name in self.conversation.sampling else ""
                self.print(f"{name} {'random' if value is None else value}{own}")
            return
        name, _, text = argument.partition(" ")
        if name not in SAMPLING:
            raise BadOptionError(f"there is no {name}: choose from {', '.join(SAMPLING)}")
        kind = SETTINGS[f"sampling.{name}"].kind
        try:
            value = kind.from_text(text.strip())
        except ValueError:
            raise BadOptionError(f"{name} must be {kind.says}") from None
        await self.conversation.set_sampling({**self.conversation.sampling, name: value})
        self.say(f"{name} {text.strip()} in this conversation")

    async def do_think(self, argument: str) -> None:
        if argument:
            if argument.lower() not in THINK:
                raise BadOptionError(f"{argument} is none of {', '.join(THINK)}")
            self.conversation.set_think(None if argument.lower() == "auto" else argument.lower())
        value = self.conversation.think or "auto"
        self.say(self.conversation.think_fixed or f"reasoning {value}: {THINK[value]}")
