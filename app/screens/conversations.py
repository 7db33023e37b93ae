"""The list of conversations: search, open, rename, fork, delete with undo, export."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import DescendantFocus
from textual.timer import Timer
from textual.widgets import Input, OptionList

from macspec.errors import BadOptionError, MacspecError
from macspec.plaintext import one_line
from macspec.store import Chat, Store, title_of

from ..chat.chatlist import (
    LISTED,
    ChatRow,
    Excerpt,
    Exports,
    Opening,
    file_name,
    find_chats,
    shortened,
    trimmed,
    when,
)
from .box import MUTED, Ask, ListBox

PAUSE = 0.12
"""Seconds without a key after which a search begins."""


class Conversations(ListBox[int | None, ChatRow]):
    """Conversations to choose from; the result is the one to open.

    Args:
        current: the one that is shown.
        busy: whether a reply is being generated in it; then it cannot be deleted.
        query: the initial search.
    """

    heading = "Conversations"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("r", "rename", "Rename"),
        Binding("f", "fork", "Fork"),
        Binding("d", "delete", "Delete"),
        Binding("u", "undo", "Undo delete"),
        Binding("e", "export('.md')", "Export Markdown"),
        Binding("J", "export('.json')", "Export JSON"),
    ]
    placeholder = "type to search"
    letters = ("rename", "fork", "delete", "undo", "export")

    def __init__(
        self,
        store: Store,
        *,
        current: int | None = None,
        busy: bool = False,
        query: str = "",
    ) -> None:
        super().__init__(query)
        self._store, self._current, self._busy = store, current, busy
        self._timer: Timer | None = None
        self.opening: Opening | None = None
        """What was chosen, with the message that was found."""

    def on_mount(self) -> None:
        self._search()
        self._hint()

    def _word(self, rows: Sequence[ChatRow]) -> str:
        if not rows:
            nothing = "no matches; try fewer or other words" if self._searched else ""
            return self._store.trouble or nothing or "no conversations yet"
        if len(rows) == LISTED and not self._searched:
            return f"the latest {LISTED}; search to find older ones"
        return ""

    @property
    def _searched(self) -> bool:
        return bool(self.query_one(Input).value.strip())

    def line(self, row: ChatRow) -> Content:
        mark = "▸ " if row.chat.id == self._current else "  "
        found = row.excerpt and not row.who
        title = _shown(row.excerpt) if found else Content(title_of(row.chat))
        about = f"{when(row.chat.changed, time.time())} · {row.about}"
        lines = [
            Content.assemble(mark, title.stylize("bold")),
            Content.assemble("  ", (about, MUTED)),
        ]
        if row.who:
            lead = max(self.size.width // 3, 8)
            said = _shown(trimmed(row.excerpt, lead))
            lines.append(Content.assemble("  ", (f"{row.who}: ", MUTED), said))
        return Content("\n").join(lines)

    @on(DescendantFocus)
    def _hint(self) -> None:
        if self.searching:
            self.hint(("Enter", "open"), ("↓ Tab", "to the list"), ("Esc", "close"))
            return
        self.hint(
            ("Enter", "open"),
            ("r", "rename"),
            ("f", "fork"),
            ("d", "delete"),
            ("u", "undo"),
            ("e", "export"),
            ("J", "as JSON"),
            ("/", "search"),
            ("Esc", "close"),
        )

    @on(Input.Changed)
    def _typed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PAUSE, self._search)

    def _search(self, keep: int | None = None, note: tuple[str, str] = ("", "")) -> None:
        """Show the rows that match now, and highlight the conversation to ``keep``; ``note`` is a
        line with its severity, in place of the list's own."""
        self.run_worker(self._find(keep, note), exclusive=True, group="search")

    async def _find(self, keep: int | None, note: tuple[str, str]) -> None:
        query = self.query_one(Input).value
        rows = await asyncio.to_thread(find_chats, self._store, query)
        if len(self.query("Rows, #status")) < 2:  # It was closed meanwhile.
            return
        places = [row.chat.id for row in rows]
        chosen = self._current if keep is None and not self._searched else keep
        self.show_rows(rows, places.index(chosen) if chosen in places else 0)
        self.status(*(note if note[0] else (self._word(rows), "")))

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        if (row := self.chosen) is not None:
            self.opening = Opening(row.chat.id, row.message, self.query_one(Input).value)
            self.dismiss(row.chat.id)

    def action_rename(self) -> None:
        if (row := self.chosen) is not None:
            self.run_worker(self._rename(row), group="ask")

    async def _rename(self, row: ChatRow) -> None:
        def check(title: str) -> str:
            return "" if one_line(title) else "the title is empty"

        title = await self.app.push_screen_wait(
            Ask("New title:", title_of(row.chat), title="Rename", check=check)
        )
        if title is not None:
            self._do(
                lambda: self._store.rename(row.chat.id, one_line(title)), "renamed", row.chat.id
            )

    def action_fork(self) -> None:
        if (row := self.chosen) is not None:
            self._do(lambda: self._fork(row.chat.id), "forked; Enter opens the copy")

    def _fork(self, id: int) -> Chat:
        leaf = self._store.chat(id).leaf
        if leaf is None:
            raise BadOptionError("this conversation is empty")
        return self._store.fork(leaf)

    def action_delete(self) -> None:
        if (row := self.chosen) is None:
            return
        if row.chat.id == self._current and self._busy:
            self.status("a reply is being generated there: stop it first", "warning")
            return
        at = self.listed.index(row)
        beside = (*self.listed[at + 1 :], *reversed(self.listed[:at]))
        note = f"deleted {shortened(title_of(row.chat))}; u restores it"
        self._do(
            lambda: self._store.delete(row.chat.id)[0], note, beside[0].chat.id if beside else None
        )

    def action_undo(self) -> None:
        self._do(lambda: self._store.undo()[0], "restored")

    def action_export(self, suffix: str) -> None:
        if (row := self.chosen) is not None:
            self.run_worker(self._export(row, suffix), group="ask")

    async def _export(self, row: ChatRow, suffix: str) -> None:
        exports = Exports(self._store)

        def check(name: str) -> str:
            try:
                path = exports.write(row.chat.id, name)
            except MacspecError as error:
                return str(error)
            self.status(one_line(f"wrote {path}"))
            return ""

        name = file_name(title_of(row.chat), suffix)
        await self.app.push_screen_wait(Ask("Export to:", name, title="Export", check=check))

    def _do(self, work: Callable[[], Chat], done: str, then: int | None = None) -> None:
        """Change the store, then show the list and how that went.

        Args:
            work: returns the conversation that it made or changed.
            done: what to say if nothing goes wrong.
            then: the conversation to highlight; None: the one that ``work`` returns.
        """
        row = self.chosen
        try:
            chat = work()
        except MacspecError as error:
            self._search(None if row is None else row.chat.id, (str(error), "error"))
            return
        trouble = self._store.trouble
        self._search(then or chat.id, (trouble, "warning") if trouble else (done, ""))


def _shown(excerpt: Excerpt) -> Content:
    """An excerpt with its matches reversed, which shows without colours too."""
    return Content.assemble(*((text, "reverse" if match else "") for text, match in excerpt))
