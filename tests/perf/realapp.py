"""The app and ``macspec run`` with a real pair: how fast both decode, how soon the app is there and
gone, and how soon a key shows.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pseudoterminal import PATIENCE, Terminal
from stage import LEAVE, PANEL, REGENERATE, STOP

from macspec.errors import MacspecError
from macspec.plaintext import one_line
from macspec.store import ASSISTANT, OPEN, Message, Store

MACSPEC = (sys.executable, "-P", "-m", "macspec")

PLACEHOLDER = "Ask anything"
"""What an empty prompt shows."""

LETTERS = "бгджзилптфцчшщъыьэюя"
"""Typed one by one; nothing else on the screen has them."""

MARK = "ж"
"""Typed to see that the keys before it were taken."""

NEW, ERASE, EMPTY, DEEPER, SHALLOWER = "\x0e", "\x7f", "\x15", "\x1b[1;3A", "\x1b[1;3B"

BESIDE = "computed by"
"""What the panel alone shows."""

WAITS = (0.05, 0.3)
"""Seconds between what the last key did and the next one."""

TRIES = 3
"""Replies, more than there are keys, after which no longer one will come."""

OFTEN = 0.25
"""Seconds between two looks into the store."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What both are asked, and how."""

    models: tuple[str, ...]
    """Options of both that say which pair."""
    prompt: str
    max_tokens: int
    depth: int
    """Tokens that the draft model guesses in a round; 0: plain decoding."""
    seed: int = 1

    def options(self) -> list[str]:
        """For both, so that both decode the same tokens in the same rounds."""
        method = "draft" if self.depth else "off"
        return [
            *self.models,
            *("--method", method, "--depth", str(self.depth), "--no-learn"),
            *("--temperature", "0", "--seed", str(self.seed)),
            *("--max-tokens", str(self.max_tokens)),
        ]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A reply."""

    tokens: int
    tokens_per_s: float | None
    """Of decode."""
    text: str


def run(asked: Asked, environ: Mapping[str, str]) -> Decoded:
    """What ``macspec run`` makes of it.

    Raises:
        MacspecError: it could not.
    """
    command = [*MACSPEC, "run", asked.prompt, "--json", "--no-save", *asked.options()]
    done = subprocess.run(
        command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise MacspecError(
            one_line(last).partition("error: ")[2] or f"macspec run ended with {done.returncode}"
        )
    finished = json.loads(done.stdout.splitlines()[-1])
    return Decoded(finished["tokens"], finished["decode_tokens_per_s"], finished["text"])


class RealApp:
    """The app in a terminal.

    Args:
        asked: which pair, and how it decodes.
        home: where the app keeps things.
        environ: of the process, ``MACSPEC_HOME`` included.
        settle: seconds after a change until what it leaves to do is done.
    """

    def __init__(
        self, asked: Asked, home: Path, environ: Mapping[str, str], settle: float = 0.7
    ) -> None:
        self._asked, self._settle = asked, settle
        self._store = Store(home / "data" / "chats" / "chats.db")
        self.terminal = Terminal([*MACSPEC, "chat", *asked.options()], environ)

    def __enter__(self) -> Self:
        self.terminal.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.terminal.__exit__(kind, error, trace)
        finally:
            self._store.close()

    def usable(self) -> float:
        """Seconds from the process's start until a typed character is echoed."""
        self.terminal.wait_for(PLACEHOLDER, ever=True)
        self.terminal.press(LETTERS[0])
        echoed = self.terminal.wait_for(LETTERS[0])
        return echoed - self.terminal.began

    def ready(self) -> None:
        """Wait until the pair is loaded, in a new conversation with an empty prompt."""
        self.terminal.wait_for("● ready", ever=True)
        self.terminal.press(ERASE)
        self.terminal.look_on(self._settle)
        self.terminal.press(NEW)
        self.terminal.look_on(self._settle)

    def leave(self) -> float:
        """Seconds from the key to the end of the process."""
        pressed = self.terminal.press(LEAVE)
        return self.terminal.ended() - pressed

    def reply(self) -> Decoded:
        """Ask, and wait for the whole reply.

        Raises:
            MacspecError: there is none.
        """
        before = self._before()
        self.terminal.press(self._asked.prompt)
        self.terminal.look_on(self._settle)
        self.terminal.press("\r")
        found = self._wait(lambda it: it.id != before and it.state != OPEN)
        stats = None if found.metadata is None else found.metadata.stats
        if stats is None:
            raise MacspecError(f"the app's reply has no numbers: it is {found.state}")
        return Decoded(stats["tokens"], stats["decode_tokens_per_s"], found.text)

    def key_times(self, count: int, rng: random.Random) -> list[tuple[str, float]]:
        """Kinds of keys, and seconds to what they show, at some moments of a reply that streams.

        Raises:
            MacspecError: no reply is long enough.
        """
        times: list[tuple[str, float]] = []
        keys = self._keys(rng)
        reply: Message | None = None
        replies = 0
        while len(times) < count:
            if reply is None or not self._open(reply):
                replies += 1
                if replies > TRIES + count:
                    raise MacspecError(
                        "replies are over before a key can be pressed: --max-tokens or --prompt "
                        "makes them longer"
                    )
                reply = self._again()
            self.terminal.look_on(rng.uniform(*WAITS))
            kind, key, shows = next(keys)
            pressed = self.terminal.press(key)
            seconds = self.terminal.wait_for(shows) - pressed
            if self._open(reply):
                times.append((kind, seconds))
        if reply is not None and self._open(reply):
            self.terminal.press(STOP)
            self._wait(lambda it: it.state != OPEN)
        self.terminal.press(EMPTY)
        self.terminal.look_on(self._settle)
        return times

    def _keys(self, rng: random.Random) -> Iterator[tuple[str, str, str]]:
        """Kinds, keys, and what each of them shows: in any four two letters, depth and panel."""
        depth, typed = self._asked.depth, 0
        while True:
            kinds = ["letter", "letter", "depth", "panel"]
            rng.shuffle(kinds)
            for kind in kinds:
                if kind == "letter":
                    if typed and typed % len(LETTERS) == 0:
                        self.terminal.press(EMPTY)
                        self.terminal.look_on(self._settle)
                    letter = LETTERS[typed % len(LETTERS)]
                    typed += 1
                    yield kind, letter, letter
                elif kind == "depth":
                    key, by = (DEEPER, 1) if depth == self._asked.depth else (SHALLOWER, -1)
                    depth += by
                    yield kind, key, f"depth {depth} from the next round"
                else:
                    # Were it shown again before it is gone, nothing would be drawn.
                    self.terminal.press(PANEL + MARK)
                    self.terminal.wait_for(MARK)
                    self.terminal.press(ERASE)
                    self.terminal.look_on(self._settle)
                    yield kind, PANEL, BESIDE

    def _again(self) -> Message:
        """Another reply to the same prompt, once there is some of it."""
        before = self._before()
        self.terminal.press(REGENERATE)
        found = self._wait(lambda it: it.id != before)
        self.terminal.look_on(OFTEN)
        return found

    def _open(self, reply: Message) -> bool:
        return self._store.message(reply.id).state == OPEN

    def _before(self) -> int | None:
        last = self._last()
        return None if last is None else last.id

    def _last(self) -> Message | None:
        """The newest reply."""
        chat = self._store.last_chat()
        leaf = None if chat is None or chat.leaf is None else self._store.message(chat.leaf)
        return leaf if leaf is not None and leaf.role == ASSISTANT else None

    def _wait(self, true: Callable[[Message], bool]) -> Message:
        """Wait for the newest reply to be as it is wanted."""
        for _ in range(int(PATIENCE / OFTEN)):
            found = self._last()
            if found is not None and true(found):
                return found
            self.terminal.look_on(OFTEN)
        raise MacspecError("the app made no reply")
