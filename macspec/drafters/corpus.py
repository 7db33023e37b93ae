"""The user's past replies, kept on this machine to draft from."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadOptionError
from ..io import private_folder, write_atomic
from .matches import END, Replies

LIMIT = 1_000_000
"""Tokens kept; the oldest replies are dropped first."""

PATIENCE = 1.0
"""Seconds to wait for another process that is saving."""


def vocabulary_key(table: Mapping[int, str], size: int) -> str:
    """A name for what the ids mean, of which the target can emit ``size``: models with the same one
    can share replies."""
    digest = hashlib.sha256(str(size).encode())
    for index in sorted(table):
        digest.update(f"\n{index} {table[index]!r}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


class Corpus:
    """Past replies of one vocabulary, in memory and in one file.

    Only its owner can read the file, which holds nothing but the tokens of replies, in eight bytes
    each. It is replaced atomically; a damaged file or one of another kind counts as empty.

    Args:
        key: the vocabulary, as ``vocabulary_key`` has it.
        limit: most tokens kept.
    """

    def __init__(self, path: Path, key: str, limit: int) -> None:
        self.path = path
        self.key = key
        self.limit = limit
        self.replies = _read(path, key, limit)
        """The searchable replies: those present when last opened or saved."""
        self._new: deque[list[int]] = deque()
        self._held = 0

    @classmethod
    def open(cls, folder: Path, key: str, limit: int = LIMIT) -> Corpus:
        """The replies kept in a folder, which need not be there; a BadOptionError if the limit is
        below 3."""
        if limit < 3:
            raise BadOptionError(f"the corpus is limited to {limit} tokens; give at least 3")
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        return cls(folder / f"{name}.npz", key, limit)

    def add(self, tokens: Sequence[int]) -> None:
        """Take a reply, to be searched once saved; a ValueError if a token is no 32-bit id."""
        reply = list(tokens)
        if any(not 0 <= token < END for token in reply):
            raise ValueError("a reply holds a token that is no id")
        self._new.append(reply)
        self._held += len(reply)
        while self._held > self.limit and len(self._new) > 1:
            self._held -= len(self._new.popleft())

    def save(self) -> bool:
        """Make new replies searchable, together with what other processes saved meanwhile.

        Returns whether it worked; if not, the next call tries again.
        """
        if not self._new:
            return True
        try:
            with self._locked():
                replies = _read(self.path, self.key, self.limit).with_new(self._new, self.limit)
                self._write(replies)
        except OSError:
            return False
        self.replies = replies
        self._new.clear()
        self._held = 0
        return True

    def clear(self) -> None:
        """Forget all replies of this vocabulary, in memory and on disk.

        Raises:
            OSError: the file cannot be removed.
        """
        self._new.clear()
        self._held = 0
        self.replies = Replies()
        if self.path.exists():
            with self._locked():
                self.path.unlink(missing_ok=True)

    def _write(self, replies: Replies) -> None:
        for left in self.path.parent.glob(f".{self.path.name}-*"):  # by a crash
            left.unlink(missing_ok=True)
        text = np.frombuffer(replies.text, ">u4")
        file = io.BytesIO()
        np.savez(file, key=np.array(self.key), text=text, order=replies.order)
        write_atomic(self.path, file.getvalue())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all processes; an OSError if another one takes too long."""
        private_folder(self.path.parent)
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(PATIENCE / 50)
            yield
        finally:
            os.close(descriptor)


def _read(path: Path, key: str, limit: int) -> Replies:
    """What the file holds, at most ``limit`` tokens of it; nothing if it is not what it should."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if file["key"].item() != key:
                return Replies()
            text, order = file["text"], file["order"]
    except Exception:  # Damaged bytes raise whatever the layer that meets them raises.
        return Replies()
    return Replies(text.tobytes(), order).with_new([], limit) if _sound(text, order) else Replies()


def _sound(text: NDArray[Any], order: NDArray[Any]) -> bool:
    """Whether searching cannot leave the text."""
    return (
        text.dtype == np.dtype(">u4")
        and order.dtype == np.int32
        and text.ndim == order.ndim == 1
        and len(text) == len(order) > 0
        and text[0] == text[-1] == END
        and 0 <= int(order.min()) <= int(order.max()) < len(order)
    )
