"""A model to choose, and what may be typed instead. All texts are neutral."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from macspec.config.schema import BUILT_IN as BUILT_IN_NAME
from macspec.config.schema import NONE as NO_DRAFT
from macspec.errors import BadOptionError
from macspec.models.catalog import CONTEXT, Entry, find
from macspec.models.machine import GIB
from macspec.models.progress import size
from macspec.plaintext import one_line

BUILT_IN, HERE, FOLDER, INCOMPLETE = "built in", "downloaded", "folder", "incomplete"
ABSENT, TYPED, NONE = "to download", "as typed", "none"
"""Where a model is."""


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model to choose: a target, or a draft for one."""

    model: str | None
    """A folder or an id; None: the built-in pair, or no draft."""
    name: str
    where: str
    """One of the constants above."""
    size: float | None = None
    """Bytes on the disk, or to download."""
    memory: float | None = None
    """Bytes that it, or the pair, needs at ``positions``."""
    positions: int = CONTEXT
    fits: bool | None = None
    reason: str = ""
    """Why it cannot be used; empty where it can."""
    note: str = ""
    pairs: tuple[Entry, ...] = ()
    """The pairs of the catalogue that it belongs to."""
    verified: bool = False
    """Whether it was checked that it can draft for the target."""
    current: bool = False
    """Whether it is loaded."""
    own_head: bool = False
    """Whether it is a head that was made for the target."""

    @property
    def usable(self) -> bool:
        return not self.reason

    @property
    def absent(self) -> bool:
        return self.where in (ABSENT, INCOMPLETE, TYPED) and self.model is not None

    @property
    def facts(self) -> str:
        """Where it is, its size, what it needs, whether that fits, and why it cannot be used."""
        parts = ["in use" if self.current else "", self.where if self.where != NONE else ""]
        if self.size:
            parts.append(size(self.size))
        if self.memory is not None:
            parts.append(f"needs {_memory(self.memory)} at context {self.positions}")
        if self.fits is not None:
            parts.append("fits" if self.fits else "too large for this machine")
        return " · ".join(part for part in (*parts, self.reason or self.note) if part)


def rank(draft: ModelOffer) -> tuple[int, bool, str]:
    """The order of drafts: own heads, recommended, verified, none, the others by name."""
    if draft.own_head:
        return -1, False, ""
    if draft.pairs and draft.usable:
        return 0, False, ""
    if draft.verified:
        return 1, False, ""
    if draft.where == NONE:
        return 2, False, ""
    return 3, not draft.usable, draft.name.lower()


def filtered(offers: Sequence[ModelOffer], typed: str) -> list[ModelOffer]:
    """Those with every typed word somewhere in their names, and what was typed if it is a model."""
    words = typed.lower().split()
    found = [it for it in offers if all(word in _searched(it) for word in words)]
    extra = typed_offer(typed) if words else None
    if extra is not None and not any(same_model(it.model, extra.model) for it in offers):
        found.append(extra)
    return found


def typed_offer(text: str) -> ModelOffer | None:
    """A folder or an id on the hub that was typed; None where it is neither."""
    text = text.strip()
    path = os.path.expanduser(text)
    if os.path.isdir(path):
        folder = str(Path(path).resolve())
        able = os.path.exists(os.path.join(folder, "config.json"))
        reason = "" if able else "no model in this folder: it has no config.json"
        return ModelOffer(folder, display_name(folder), FOLDER, reason=reason)
    if text.startswith((".", "~", "/")):
        return ModelOffer(text, one_line(text), FOLDER, reason="there is no such folder")
    owner, _, name = text.partition("/")
    if owner and name and "/" not in name and not text.startswith((".", "~", "/")):
        return ModelOffer(text, one_line(text), TYPED, note="an id on the Hugging Face hub")
    return None


def named_pair(argument: str, known: Sequence[Entry]) -> tuple[str | None, str | None]:
    """The target (None: the built-in pair) and draft (None: none) that words name: a pair of the
    catalogue by its name, or one or two folders or ids; BadOptionError if they name none."""
    try:
        words = shlex.split(argument)
    except ValueError:
        words = []
    if not 1 <= len(words) <= 2:
        raise BadOptionError("name a pair, or a target and a draft separated by a space")
    target, draft = os.path.expanduser(words[0]), words[-1] if len(words) == 2 else None
    chosen = None if draft in (None, NO_DRAFT) else os.path.expanduser(draft)
    if target == BUILT_IN_NAME:
        return None, chosen
    if "/" not in target and not os.path.isdir(target):
        entry = find(target, known)
        target, chosen = entry.target, entry.draft if draft is None else chosen
    return target, chosen


def _searched(offer: ModelOffer) -> str:
    names = (name for it in offer.pairs for name in (it.name, *it.models))
    return " ".join([offer.name, offer.model or "", offer.where, *names]).lower()


def same_model(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return os.path.expanduser(one) == os.path.expanduser(other)


def display_name(model: str) -> str:
    path = PurePath(model)
    return one_line(f"{path.name} ({path.parent})" if path.is_absolute() else model)


def _memory(count: float) -> str:
    return f"{count / GIB:.1f} GB" if count >= 0.1 * GIB else f"{count / 2**20:.0f} MB"
