"""A model as it is offered: as a target, or as a draft for one. All texts are neutral."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from macspec.models.catalog import CONTEXT, Entry
from macspec.models.machine import GIB
from macspec.models.progress import size
from macspec.plaintext import one_line

BUILT_IN, HERE, FOLDER, UNFINISHED, FETCH, TYPED, NONE = (
    "built in",
    "here",
    "folder",
    "not whole",
    "to fetch",
    "as typed",
    "none",
)
"""Where a model is."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A target, or a draft for one."""

    model: str | None
    """A folder or an id; None: the built-in pair, as a draft none."""
    name: str
    where: str
    """One of the constants above."""
    size: float | None = None
    """Bytes here, or to fetch."""
    memory: float | None = None
    """Bytes that it, or the pair, needs at ``positions``."""
    positions: int = CONTEXT
    fits: bool | None = None
    reason: str = ""
    """Why it cannot be used; empty where nothing is against it."""
    note: str = ""
    """What else is to say."""
    pairs: tuple[Entry, ...] = ()
    """What the catalogue has of it."""
    proved: bool = False
    """Whether it is known that it can draft for the target."""
    current: bool = False
    """Whether it is loaded now."""

    @property
    def usable(self) -> bool:
        """Whether it can be chosen."""
        return not self.reason

    @property
    def absent(self) -> bool:
        """Whether it has to be fetched."""
        return self.where in (FETCH, UNFINISHED, TYPED) and self.model is not None

    @property
    def facts(self) -> str:
        """Where it is, its size, what it needs and whether that fits, or why it cannot be used."""
        parts = ["in use" if self.current else "", self.where if self.where != NONE else ""]
        if self.size:
            parts.append(size(self.size))
        if self.memory is not None:
            parts.append(f"needs {_memory(self.memory)} at context {self.positions}")
        if self.fits is not None:
            parts.append("fits" if self.fits else "too large for this machine")
        return " · ".join(part for part in (*parts, self.reason or self.note) if part)


def _memory(count: float) -> str:
    return f"{count / GIB:.1f} GB" if count >= 0.1 * GIB else f"{count / 2**20:.0f} MB"


def typed_offer(text: str) -> Offer | None:
    """What was typed as a model: a folder, or an id on the hub; None where it is neither."""
    text = text.strip()
    path = os.path.expanduser(text)
    if os.path.isdir(path):
        whole = str(Path(path).resolve())
        return Offer(whole, named(whole), FOLDER)
    owner, _, name = text.partition("/")
    if owner and name and "/" not in name and not text.startswith((".", "~", "/")):
        return Offer(text, one_line(text), TYPED, note="an id on the Hugging Face hub")
    return None


def filtered(offers: Sequence[Offer], typed: str) -> list[Offer]:
    """Those with every word somewhere in their names, and what was typed if it is a model."""
    words = typed.lower().split()
    found = [it for it in offers if all(word in _searched(it) for word in words)]
    extra = typed_offer(typed) if words else None
    if extra is not None and all(not same(it.model, extra.model) for it in offers):
        found.append(extra)
    return found


def _searched(offer: Offer) -> str:
    names = (name for it in offer.pairs for name in (it.name, *it.models))
    return " ".join([offer.name, offer.model or "", offer.where, *names]).lower()


def same(some: str | None, other: str | None) -> bool:
    if some is None or other is None:
        return some is other
    return os.path.expanduser(some) == os.path.expanduser(other)


def named(model: str) -> str:
    path = PurePath(model)
    if not path.is_absolute():
        return one_line(model)
    return one_line(f"{path.name} ({path.parent})")
