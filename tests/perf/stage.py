"""The app before an engine that keeps to a pace: what it takes of a core, and how long it freezes.

Conversations are made up, and everything is in a folder of its own.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from madeup import conversation, keep, text_of
from paced import END, Wish
from pseudoterminal import Terminal

from macspec.assets import pocket
from macspec.errors import MacspecError
from macspec.store import Store

PANEL, REGENERATE, STOP, LEAVE, TO_TRANSCRIPT, TOP = "\x02", "\x12", "\x1b", "\x11", "\t", "g"

WATCHED = Path(__file__).with_name("watched.py")

IMPORTED = 3.5
"""Seconds after the start until the app has imported what it puts off, and froze its garbage."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the app took since the last look at it. Times in seconds."""

    wall: float
    core: float
    """Of the processor, by all threads of the app's process."""
    worst: float
    """Longest that the event loop kept a timer waiting; 0 where nothing looked at that."""
    busy: float
    """Most of the process's own time in such a wait."""
    writing: bool
    """Whether a reply is being written at its end."""

    @property
    def share(self) -> float:
        """Of one core."""
        return self.core / self.wall if self.wall > 0 else 0.0


class Stage:
    """The app with a conversation of forty turns, and one whose only reply is huge.

    Args:
        folder: an empty one, which is then the app's.
        environ: of the process, without macspec's own variables.
        characters: of the huge reply.
        watch: whether the event loop is looked at.
        turns: of the conversation that is open.
        settle: seconds after a change until what it leaves to do is done.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        *,
        characters: int,
        watch: bool = False,
        turns: int = 40,
        settle: float = 0.7,
    ) -> None:
        self._settle = settle
        self._looks, self._read = folder / "looks", 0
        folder.mkdir(parents=True)
        store = Store(folder / "data" / "chats" / "chats.db")
        try:
            target = pocket().target
            text = text_of(random.Random(4), characters - 2) + "\n" + END
            self._huge = keep(store, [("user", "And?"), ("assistant", text)], str(target))
            chat = keep(store, conversation(turns), str(target))
        finally:
            store.close()
        command = [sys.executable, str(WATCHED), str(self._looks)]
        command += ["--chat", str(chat), *(["--watch"] if watch else [])]
        self.terminal = Terminal(command, {**environ, "MACSPEC_HOME": str(folder)})

    def __enter__(self) -> Self:
        self.terminal.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.terminal.__exit__(kind, error, trace)

    def begin(self) -> None:
        """Wait until it is there and has nothing more to do."""
        self.terminal.wait_for("● ready")
        self.terminal.look_on(IMPORTED)

    def look(self) -> Look:
        """What it took since the last look."""
        self.terminal.process.send_signal(signal.SIGUSR1)
        self.terminal.wait_until(lambda: len(self._lines()) > self._read, "a look at itself")
        line = self._lines()[self._read]
        self._read += 1
        return Look(**json.loads(line))

    def ask(self, wish: Wish) -> None:
        """Type a wish and send it."""
        prompt = wish.prompt()
        self.terminal.press(prompt)
        self.terminal.wait_for(prompt[-1])
        self.terminal.look_on(self._settle)
        self.look()
        self.terminal.press("\r")

    def shares(self, seconds: float, *, hidden_first: bool) -> tuple[float, float]:
        """Shares of a core while a reply streams, each over so many seconds: with the panel, and
        without it.

        Raises:
            MacspecError: the reply ended meanwhile.
        """
        if hidden_first:
            without = self._share(seconds)
            self.terminal.press(PANEL)
            return self._share(seconds), without
        beside = self._share(seconds)
        self.terminal.press(PANEL)
        return beside, self._share(seconds)

    def _share(self, seconds: float) -> float:
        self.terminal.look_on(self._settle)
        self.look()
        self.terminal.look_on(seconds)
        look = self.look()
        if not look.writing:
            raise MacspecError("the paced reply was over before the app was measured")
        return look.share

    def streamed(self, wish: Wish) -> Look:
        """The worst of a reply, from the key that asks for it until it lies there finished."""
        self.ask(wish)
        return self._until_drawn()

    def opened(self) -> Look:
        """The worst of opening the huge reply, and of going to its beginning."""
        self.terminal.press(f"/open {self._huge}")
        self.terminal.look_on(self._settle)
        self.look()
        self.terminal.press("\r")
        shown = self._until_drawn()
        self.terminal.press(TO_TRANSCRIPT)
        self.terminal.look_on(self._settle / 2)
        self.terminal.press(TOP)
        self.terminal.look_on(self._settle)
        return worse(shown, self.look())

    def _until_drawn(self) -> Look:
        self.terminal.wait_for(END)
        look = self.look()
        while look.writing:
            self.terminal.look_on(0.05)
            look = worse(look, self.look())
        self.terminal.look_on(self._settle)
        return worse(look, self.look())

    def _lines(self) -> list[str]:
        """What was written so far, whole lines alone."""
        if not self._looks.exists():
            return []
        *whole, _ = self._looks.read_text(encoding="utf-8").split("\n")
        return whole


def worse(one: Look, other: Look) -> Look:
    """Two looks as one."""
    return Look(
        one.wall + other.wall,
        one.core + other.core,
        max(one.worst, other.worst),
        max(one.busy, other.busy),
        other.writing,
    )
