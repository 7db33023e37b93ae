"""The path that is shown through the tree of a conversation's messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from macspec.errors import BadOptionError
from macspec.store import ASSISTANT, Chat, Message, Store, spoken

from .turns import Turn, turn_of

GONE = "this conversation was removed for good in another window"
DELETED = "this conversation was deleted in another window"
CHANGED = "this conversation was changed in another window"


class Tree:
    """A stored conversation, or a new one that is not stored yet, with ``system`` as its prompt."""

    def __init__(self, store: Store, system: str = "") -> None:
        self.store = store
        self.chat: Chat | None = None
        """None: a new one, without messages or unsent text."""
        self.turns: tuple[Turn, ...] = ()
        self._new_system = self._system = system
        self._sampling: dict[str, object] = {}
        self.thread: list[Message] = []
        """The messages of the path."""
        self._dropped: frozenset[int] = frozenset()
        self._left: dict[int, int] = {}
        """The end of the path through each message when it was shown last."""
        self._told = ""
        """What another window did to it, as far as it was told."""

    @property
    def system(self) -> str:
        return self._system if self.chat is None else self.chat.system

    @property
    def sampling(self) -> dict[str, object]:
        """The sampling settings of this conversation's own."""
        return dict(self._sampling if self.chat is None else self.chat.sampling)

    @property
    def leaf(self) -> int | None:
        """The last message of the path; None while there is none."""
        return self.thread[-1].id if self.thread else None

    def open(self, id: int) -> None:
        """Show a conversation where it was left; BadOptionError if there is none."""
        self.chat = self.store.chat(id)
        self.thread, self._dropped = self.store.thread(id), frozenset()
        self._show()
        for place, message in reversed(list(enumerate(self.thread))):
            if message.metadata is not None:
                stats = message.metadata.stats or {}
                self.drop(stats.get("dropped_messages", 0), self.thread[:place])
                break

    def clear(self) -> None:
        self.chat = None
        self._system, self._sampling = self._new_system, {}
        self.thread, self.turns, self._dropped = [], (), frozenset()

    def elsewhere(self) -> str:
        """What another window did to this conversation since, in a line; empty: nothing new.

        It is shown as it is now; one that was deleted stays on screen until it is written to.
        """
        if self.chat is None:
            return ""
        what, now = self.stored()
        news, self._told = what != self._told, what
        if what == CHANGED:
            self._told = ""
            self.open(now.id)
        elif what and news:
            return f"{what}; a message restores it"
        elif not what:
            self.chat = now
        return what if what == CHANGED else ""

    def claim(self) -> str:
        """As ``elsewhere``, before something is written: the path stays as it is shown, and a
        conversation that was deleted is restored."""
        if self.chat is None:
            return ""
        what, now = self.stored()
        self._told = ""
        if what in (DELETED, GONE):
            now = self.store.come_back(now, self.thread)
            if now.id == self.chat.id:
                self.chat = now
            else:
                self.open(now.id)
            return f"{what}; it is restored"
        if what == CHANGED:
            self.chat = now
            return f"{what}; both versions are kept"
        return ""

    def stored(self) -> tuple[str, Chat]:
        """How the conversation differs from what is known of it, and as it is."""
        chat = self.chat
        assert chat is not None
        try:
            now = self.store.chat(chat.id)
        except BadOptionError:
            return GONE, chat
        if now.uid != chat.uid:
            return GONE, chat
        if now.deleted is not None:
            return DELETED, now
        same = (now.leaf, now.messages) == (self.leaf, chat.messages)
        return "" if same else CHANGED, now

    def begun(self) -> Chat:
        """The conversation, which is stored now if it was not."""
        if self.chat is None:
            self.chat = self.store.new_chat(system=self._system, sampling=self._sampling)
        return self.chat

    def set_system(self, text: str) -> None:
        self._system = text
        if self.chat is not None:
            self.chat = self.store.set_system(self.chat.id, text)

    def set_sampling(self, sampling: dict[str, object]) -> None:
        """Set this conversation's own sampling; the rest is as in the settings."""
        self._sampling = dict(sampling)
        if self.chat is not None:
            self.chat = self.store.set_sampling(self.chat.id, sampling)

    def message(self, id: int) -> Message:
        """A message of the path; BadOptionError if it is none."""
        for message in self.thread:
            if message.id == id:
                return message
        raise BadOptionError(f"message {id} is not shown")

    def answered(self, id: int | None) -> Message:
        """The message to answer again: one of the user's, or an empty reply, which starts over.
        It is named by itself or by its reply; None: the last."""
        if id is None and not self.thread:
            raise BadOptionError("there is nothing to answer yet")
        message = self.message(self.thread[-1].id if id is None else id)
        if message.role != ASSISTANT or not (message.text or message.reasoning):
            return message
        if message.parent is None:
            raise BadOptionError("this reply has no prompt that could be answered again")
        return self.message(message.parent)

    def add(self, text: str, parent: int | None, role: str) -> tuple[Message, Turn]:
        """Store a message of the user's, and show it as the end of the path."""
        chat = self.begun()
        message = self.store.add(chat.id, parent, text, role)
        if chat.unsent:
            self.store.set_unsent(chat.id, "")
        return message, self.put(message, parent)

    def put(self, message: Message, after: int | None) -> Turn:
        """Show a message as the end of the path, after another one of it; None: as the first."""
        keep = 0 if after is None else [each.id for each in self.thread].index(after) + 1
        self.thread = [*self.thread[:keep], message]
        self.chat = self.store.chat(message.chat)
        self._show()
        return self.turns[-1]

    def change(self, message: Message) -> Turn | None:
        """Update a message and return its turn; None where it is not on the path."""
        for place, old in enumerate(self.thread):
            if old.id == message.id:
                self.thread[place] = message
                with suppress(BadOptionError):  # It was removed for good.
                    self.chat = self.store.chat(message.chat)
                self._show()
                return self.turns[place]
        return None

    def take_back(self, id: int, leaf: int | None) -> None:
        """Remove a message that was never answered, and show the path that ends at ``leaf``."""
        assert self.chat is not None
        self.store.take_back(id)
        self.store.set_leaf(self.chat.id, leaf)
        self.open(self.chat.id)

    def step(self, id: int, by: int) -> None:
        """Show another version of a message, with what followed when it was shown last, or else
        the newest that follows; BadOptionError if there is none on that side."""
        it = self.message(id)
        siblings = self.store.siblings(it.id)
        place = siblings.index(it.id) + by
        if not 0 <= place < len(siblings):
            raise BadOptionError("there is no other version on that side")
        leaf = self._left.get(siblings[place])
        if leaf is None or leaf not in {message.id for message in self.store.messages(it.chat)}:
            leaf = self.store.newest_leaf(siblings[place])
        self.store.set_leaf(it.chat, leaf)
        self.open(it.chat)

    def drop(self, count: object, asked: Sequence[Message]) -> tuple[int, ...] | None:
        """Mark the turns that the model no longer sees, and return them; None: they are the same.

        Args:
            count: how many messages were left out of the prompt; imported data may be anything.
            asked: the messages of the prompt, without system prompts.
        """
        if not isinstance(count, int) or isinstance(count, bool):
            return None
        dropped = frozenset(message.id for group in spoken(asked)[:count] for message in group)
        if dropped == self._dropped:
            return None
        self._dropped = dropped
        self._show()
        return tuple(turn.id for turn in self.turns if turn.dropped)

    def _show(self) -> None:
        assert self.chat is not None
        self._left |= dict.fromkeys((message.id for message in self.thread), self.leaf or 0)
        families = self.store.families(self.chat.id)
        self.turns = tuple(
            turn_of(
                message,
                families.get(message.parent, [message.id]),
                dropped=message.id in self._dropped,
            )
            for message in self.thread
        )
