"""The catalogue: pairs that people run on Macs, and those that the user adds in the settings.

Nothing here imports MLX, so that the app can ask too.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any

from ..assets import folder
from ..choices import BLOCKS
from ..errors import BadOptionError, quoted
from .machine import GIB, recommended_for

CONTEXT = 8192
"""Positions for which the catalogue states the memory."""

USES = ("chat", "code")
"""What a pair is proposed for."""

HEADS = {
    "dflash2": "dflash",
    "dspark": "dspark",
    "mtp": "mtp",
    "assistant": "mtp",
    "eagle3": "eagle",
}
"""Kinds of heads that macspec loads, each with its drafting method; those that gain most first, by
the figures in ``assets/drafters.json``."""

SPARSE = re.compile(r"-a\d+(\.\d+)?b\b", re.IGNORECASE)
"""In the name of a mixture of experts. Its passes are so cheap that one of a block head, in 16 bits
as they are published, costs more than it gains over other heads."""

NON_COMMERCIAL = ("non-commercial", "-nc")
"""In the name of a licence that forbids commercial use."""

QUANTIZED = re.compile(r"[-_](mlx|[mn][xv]fp\d|\d+-?bits?|bf16|fp16|optiq|dwq)\b.*", re.IGNORECASE)
"""The end of a repository's name that says how its weights are stored."""

LONGEST = 100
"""Characters of a name."""

GIVEN = GIB // 2
"""A Mac sold as 16 GB may report slightly less; this much is overlooked."""


@dataclass(frozen=True)
class Entry:
    """A target and its draft on the Hugging Face hub."""

    name: str
    target: str
    draft: str | None = None
    quantization: tuple[str, ...] = ()
    """Of the target, and of the draft."""
    licences: tuple[str, ...] = ()
    """Of the target, and of the draft; empty where unknown."""
    uses: tuple[str, ...] = ()
    """What it is proposed for, of ``USES``."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """Repositories of heads that draft for the target, by kind; those in ``HEADS`` are offered."""
    head_sizes: Mapping[str, float] = field(default_factory=dict)
    """GB (10**9) of those heads whose size is known, by kind."""
    heads_source: str = ""
    download: float | None = None
    """Approximate GB (10**9) of both; None where unknown."""
    memory_8k: float | None = None
    """GB (2**30) that both need at ``CONTEXT`` positions."""
    drafters: tuple[str, ...] = ("draft", "suffix", "ngram")
    """Methods that can draft for the target."""
    least: float | None = None
    """GB of unified memory in the smallest Mac that holds it."""
    date: datetime.date | None = None
    """When it was taken from its source."""
    source: str = ""
    loaded: datetime.date | None = None
    """When it was last loaded with macspec; None: never."""
    user: bool = False
    """From the settings."""

    @property
    def models(self) -> tuple[str, ...]:
        """The ids that it needs, the target first."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    def fits(self, limit: int) -> bool | None:
        """Whether ``limit`` bytes hold it at ``CONTEXT`` positions; None where that is unknown."""
        return None if self.memory_8k is None else self.memory_8k * GIB <= limit


@cache
def shipped() -> tuple[Entry, ...]:
    """The pairs that ship, from small to large."""
    text = (folder() / "catalogue.toml").read_text(encoding="utf-8")
    return tuple(entry(table) for table in tomllib.loads(text)["pair"])


def catalogue(own: Iterable[Mapping[str, Any]] = ()) -> tuple[Entry, ...]:
    """The user's pairs, then the built-in ones whose names the user has not taken.

    Theirs are tables with the fields of ``Entry``; BadOptionError if one cannot be used.
    """
    added: dict[str, Entry] = {}
    for table in own:
        pair = entry(table, user=True)
        if pair.name in added:
            raise BadOptionError(f"two pairs in the settings are named {pair.name}: rename one")
        added[pair.name] = pair
    return (*added.values(), *(pair for pair in shipped() if pair.name not in added))


def entry(table: Mapping[str, Any], *, user: bool = False) -> Entry:
    """An entry from its table, whose fields are checked."""
    name = table.get("name")
    if not isinstance(name, str) or not name.strip() or "/" in name or len(name) > LONGEST:
        raise BadOptionError(
            "a pair in the settings needs a name without a slash, not "
            f"{quoted(repr(name))}: add name = ..."
        )
    known = [it.name for it in fields(Entry) if it.name != "user"]
    for key in table:
        if key not in known:
            key = quoted(key)
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise BadOptionError(f"the pair {name} has an unknown field {key}: {hint}")
    values = {key: _checked(name, key, value) for key, value in table.items()}
    if "target" not in values:
        raise BadOptionError(f"the pair {name} has no target: add target = ...")
    return Entry(**values, user=user)


def _checked(name: str, key: str, value: Any) -> Any:
    if key in ("download", "memory_8k", "least"):
        right = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        wanted = "a number of GB above 0"
    elif key == "heads":
        right = isinstance(value, dict) and all(isinstance(it, str) for it in value.values())
        wanted = "a table of strings"
    elif key == "head_sizes":
        right = isinstance(value, dict) and all(isinstance(it, float) for it in value.values())
        wanted = "a table of GB, like 0.2"
    elif key in ("quantization", "drafters", "licences", "uses"):
        right = isinstance(value, list) and all(isinstance(item, str) for item in value)
        value, wanted = tuple(value) if right else value, "a list of strings"
    elif key in ("date", "loaded"):
        right, wanted = type(value) is datetime.date, "a date like 2026-01-31"
    else:
        right, wanted = isinstance(value, str) and bool(value.strip()), "a string"
    if not right:
        raise BadOptionError(f"the pair {name}: {key} must be {wanted}, not {quoted(repr(value))}")
    return value


def find(name: str, pairs: Sequence[Entry]) -> Entry:
    """The pair of this name, or a BadOptionError."""
    named = {pair.name: pair for pair in pairs}
    if name in named:
        return named[name]
    near = get_close_matches(name, named, 1)
    hint = f"did you mean {near[0]}?" if near else "macspec models lists them"
    raise BadOptionError(f"no pair is named {name}: {hint}")


def best(memory: int, limit: int | None = None, use: str = USES[0]) -> Entry | None:
    """The pair to propose on a machine that has none: the one for the largest Macs up to this.

    Of several it is the first in the catalogue; the user's own pairs are not proposed. ``limit``
    is what models may use of the memory, in bytes; None: what macOS recommends.
    """
    limit = recommended_for(memory) if limit is None else limit
    suited = [
        pair
        for pair in shipped()
        if use in pair.uses
        and pair.least is not None
        and pair.least * GIB <= memory + GIVEN
        and pair.fits(limit)
    ]
    return max(suited, key=lambda pair: pair.least or 0, default=None)


def licence(model: str, pairs: Iterable[Entry], hub: str | None = None) -> str:
    """A model's licence by its id on the hub, or where to read it.

    Args:
        hub: what the hub says.
    """
    model = model.partition("@")[0]
    known = (
        licence
        for pair in pairs
        for id, licence in zip(pair.models, pair.licences, strict=False)
        if id == model and licence
    )
    return next(known, hub or f"see huggingface.co/{model}")


def non_commercial(licence: str) -> bool:
    return any(it in licence.lower() for it in NON_COMMERCIAL)


def advised_draft(target: str, pairs: Iterable[Entry]) -> str | None:
    """The draft that the catalogue has for a target, in whatever precision it is here."""
    return next((it.draft for it in _pairs_of(target, pairs) if it.draft), None)


def advised_head(target: str, pairs: Iterable[Entry]) -> tuple[str, str] | None:
    """The drafting method and the repository of the best head that the catalogue has for a target,
    in whatever precision it is here; None without one that macspec loads."""
    sparse, own = SPARSE.search(target) is not None, _pairs_of(target, pairs)
    kinds = sorted(HEADS, key=lambda it: sparse and HEADS[it] in BLOCKS)
    known = [(pair, kind) for kind in kinds for pair in own if kind in pair.heads]
    known.sort(key=lambda it: not _holds(*it))
    return next(((HEADS[kind], pair.heads[kind]) for pair, kind in known), None)


def _holds(pair: Entry, kind: str) -> bool:
    """Whether the smallest Mac that holds a pair holds this head too, as far as that is known."""
    head = pair.head_sizes.get(kind, 0.0) * 1e9
    return pair.least is None or (
        pair.fits(recommended_for(int(pair.least * GIB)) - int(head)) is not False
    )


def drafts_with(pair: Entry) -> tuple[str | None, str] | None:
    """What setting a pair up takes to draft: the method and repository of a head that lies apart
    from the target, else None and the draft model; None without either."""
    head = advised_head(pair.target, (pair,))
    if head is not None and plain_name(head[1]) != plain_name(pair.target):
        return head
    return None if pair.draft is None else (None, pair.draft)


def _pairs_of(target: str, pairs: Iterable[Entry]) -> list[Entry]:
    """The pairs with a target, those in its own precision first."""
    name = plain_name(target)
    found = [it for it in pairs if plain_name(it.target) == name]
    return sorted(found, key=lambda it: it.target != target)


def plain_name(model: str) -> str:
    """A repository's name without its owner and its precision, nor Meta's own in front."""
    return QUANTIZED.sub("", model.rpartition("/")[2]).lower().removeprefix("meta-")
