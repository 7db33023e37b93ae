"""The models to choose from. All texts are neutral."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from macspec.config import Config
from macspec.config.schema import BUILT_IN as BUILT_IN_NAME
from macspec.config.schema import NONE as NO_DRAFT
from macspec.errors import BadOptionError
from macspec.models.catalog import CONTEXT, Entry, best, catalogue, find
from macspec.models.machine import GIB, unified_memory, working_set
from macspec.models.progress import size
from macspec.models.scan import FoundModel
from macspec.plaintext import one_line
from macspec.worker import PairChoice

from .background import Download, ModelScan


class ModelPicker:
    """What there is to choose from.

    Args:
        config: the settings; their catalogue entries and models are offered too.
        current: the pair that is loaded.
        folders: model folders that were used before.
        survey: what is on this machine.

    Raises:
        BadOptionError: a pair of the settings cannot be used.
    """

    def __init__(
        self,
        config: Config,
        current: PairChoice,
        folders: Iterable[str] = (),
        *,
        survey: ModelScan | None = None,
    ) -> None:
        self.current = current
        self.known = catalogue(config.pairs)
        self.survey = survey or ModelScan()
        self.download: Download | None = None
        """The one that is under way, or that ended last."""
        self.ended: Callable[[Download], None] = lambda download: None
        """Told when a download has ended."""
        self._fetching: asyncio.Task[None] | None = None
        self._models = config.models
        self._folders = tuple(folders)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that are offered."""
        own = (self._models.target, self._models.draft, self.current.target, self.current.draft)
        every = (*(name for name in own if name), *self._folders)
        paths = (os.path.expanduser(name) for name in every)
        return tuple(dict.fromkeys(path for path in paths if os.path.isdir(path)))

    def targets(self, typed: str = "") -> list[ModelOffer]:
        """The built-in pair, then what is here, then what can be fetched.

        Args:
            typed: words to find in them; a folder or an id is offered as it stands.
        """
        here = [self._found(it) for it in self.survey.found.values()]
        names = {it.model for it in here}
        pairs: dict[str, list[Entry]] = {}
        for entry in self.known:
            if entry.target not in names:
                pairs.setdefault(entry.target, []).append(entry)
        offers = [
            ModelOffer(
                None,
                "built-in",
                BUILT_IN,
                fits=True,
                note="a tiny pair for small talk",
                current=self.current.target is None,
            ),
            *sorted(here, key=lambda it: (it.where == UNFINISHED, it.name.lower())),
            *(self._fetchable(entries[0]) for entries in pairs.values()),
        ]
        return filtered(offers, typed)

    def drafts(self, target: ModelOffer, typed: str = "") -> list[ModelOffer]:
        """Drafts for a target: what the catalogue says first, what cannot draft for it last."""
        assert target.model is not None
        advised = {it.draft: it for it in reversed(target.pairs) if it.draft is not None}
        none = ModelOffer(
            None,
            "no draft model",
            NONE,
            note="text that repeats is still drafted",
            current=self._loaded(target.model) and self.current.draft is None,
        )
        here = [
            self._draft(target, it, advised.get(it.name))
            for it in self.survey.found.values()
            if it.name != target.model
        ]
        names = {it.model for it in here}
        fetch = [
            self._fetchable_draft(target, entry)
            for draft, entry in advised.items()
            if draft not in names
        ]
        every = [*here, *fetch]
        first = [it for it in every if it.pairs and it.usable]
        proved = [it for it in here if it.proved and it not in first]
        rest = [it for it in here if it not in (*first, *proved)]
        rest.sort(key=lambda it: (not it.usable, it.name.lower()))
        return filtered([*first, *proved, none, *rest], typed)

    def choice(self, target: ModelOffer, draft: ModelOffer | None) -> PairChoice:
        """What to ask the engine for."""
        return self._choice(target.model, None if draft is None else draft.model)

    def _choice(self, target: str | None, draft: str | None) -> PairChoice:
        return replace(
            self.current,
            target=target,
            draft=draft,
            context=self._models.context,
            kv_bits=self._models.kv_bits,
            require_draft=False,
        )

    def asked(self, argument: str) -> PairChoice:
        """What words of a command stand for; raises as ``named_pair``."""
        target, draft = named_pair(argument, self.known)
        return self._choice(target, draft)

    def names(self) -> list[tuple[str, str]]:
        """What can be named in a command, each with what it is."""
        offers = self.targets()
        names = {it.target: it.name for it in reversed(self.known)}
        return [
            (BUILT_IN_NAME if it.model is None else names.get(it.model, it.model), it.facts)
            for it in offers
            if it.usable
        ]

    def absent(self, *offers: ModelOffer | None) -> list[str]:
        """The ids that have to be fetched for offers."""
        return [it.model for it in offers if it is not None and it.absent and it.model is not None]

    def to_fetch(self, target: ModelOffer, draft: ModelOffer | None) -> str:
        """What a download would bring, in words."""
        names = self.absent(target, draft)
        sizes = [
            it.download
            for it in target.pairs
            if it.draft == (draft and draft.model) and it.download is not None
        ]
        whole = f", about {sizes[0]:.1f} GB" if sizes and len(names) == 2 else ""
        return f"{' and '.join(map(one_line, names))}{whole}"

    def fetch(self, names: Sequence[str]) -> Download:
        """Begin a download; it goes on whatever the screen shows.

        Raises:
            BadOptionError: another one is under way.
        """
        if self.download is not None and self.download.active:
            raise BadOptionError("another download is under way: wait for it, or cancel it")
        self.download = Download(names)
        self._fetching = asyncio.create_task(self._fetch(self.download))
        return self.download

    async def _fetch(self, download: Download) -> None:
        async for _ in download.run():
            pass
        self.ended(download)

    def close(self) -> None:
        """End a download that is under way; what arrived stays."""
        if self.download is not None and self.download.active:
            self.ended = lambda download: None
            self.download.cancel()

    def _loaded(self, model: str | None) -> bool:
        return same(self.current.target, model)

    def _found(self, it: FoundModel) -> ModelOffer:
        opened = self.survey.opened.get(it.name)
        entries = tuple(entry for entry in self.known if entry.target == it.name)
        where = FOLDER if PurePath(it.name).is_absolute() else HERE
        note = "" if opened is not None or self.survey.whole else "looking at it"
        offer = ModelOffer(
            it.name,
            named(it.name),
            where,
            it.size,
            note=note,
            pairs=entries,
            current=self._loaded(it.name),
        )
        if it.missing is not None:
            # A download goes on; of a folder nothing can be fetched.
            fetched = where == HERE
            why = one_line(it.missing)
            return replace(
                offer,
                where=UNFINISHED,
                note="its download is not finished" if fetched else "",
                reason="" if fetched else why,
            )
        if opened is None:
            return offer
        offer = replace(offer, memory=opened.memory, positions=opened.positions, fits=opened.fits)
        reason = one_line(opened.reason or "")
        if opened.context is None:
            return replace(offer, reason=reason or "it cannot be loaded")
        return replace(offer, note=f"runs plain: {reason}" if reason else "")

    def _draft(self, target: ModelOffer, it: FoundModel, entry: Entry | None) -> ModelOffer:
        """A model that is here, as a draft for a target."""
        assert target.model is not None
        loaded = self._loaded(target.model) and same(self.current.draft, it.name)
        offer = replace(
            self._found(it),
            memory=None,
            fits=None,
            pairs=() if entry is None else (entry,),
            current=loaded,
        )
        if not offer.usable or offer.where == UNFINISHED:
            return offer
        fit = self.survey.fits.get((target.model, it.name))
        if fit is not None and fit.reason is not None:
            return replace(offer, reason=one_line(fit.reason), note="")
        if fit is not None:
            return replace(
                offer,
                memory=fit.memory,
                positions=fit.positions,
                fits=fit.fits,
                note="drafts for it",
                proved=True,
            )
        if (it.name, target.model) in self.survey.fits:
            return replace(offer, reason="it is larger than the target", note="")
        if self.survey.whole and target.where in (HERE, FOLDER):
            return replace(offer, reason="it is not smaller than the target", note="")
        told = "drafts for it, by the catalogue" if entry is not None else "not compared yet"
        return replace(offer, note=told)

    def _fetchable(self, entry: Entry) -> ModelOffer:
        limit = self.survey.limit
        proposed = limit is not None and best(unified_memory(), limit) == entry
        entries = tuple(it for it in self.known if it.target == entry.target)
        return ModelOffer(
            entry.target,
            one_line(entry.name),
            FETCH,
            None if entry.download is None else entry.download * 1e9,
            None if entry.memory_8k is None else entry.memory_8k * GIB,
            fits=None if limit is None else entry.fits(limit),
            note=("the proposal for this machine: " if proposed else "")
            + one_line(" + ".join(entry.models)),
            pairs=entries,
            current=self._loaded(entry.target),
        )

    def _fetchable_draft(self, target: ModelOffer, entry: Entry) -> ModelOffer:
        assert entry.draft is not None
        return ModelOffer(
            entry.draft,
            named(entry.draft),
            FETCH,
            memory=None if entry.memory_8k is None else entry.memory_8k * GIB,
            fits=None if self.survey.limit is None else entry.fits(self.survey.limit),
            note="drafts for it, by the catalogue",
            pairs=(entry,),
        )


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
class ModelOffer:
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


def typed_offer(text: str) -> ModelOffer | None:
    """What was typed as a model: a folder, or an id on the hub; None where it is neither."""
    text = text.strip()
    path = os.path.expanduser(text)
    if os.path.isdir(path):
        whole = str(Path(path).resolve())
        return ModelOffer(whole, named(whole), FOLDER)
    owner, _, name = text.partition("/")
    if owner and name and "/" not in name and not text.startswith((".", "~", "/")):
        return ModelOffer(text, one_line(text), TYPED, note="an id on the Hugging Face hub")
    return None


def filtered(offers: Sequence[ModelOffer], typed: str) -> list[ModelOffer]:
    """Those with every word somewhere in their names, and what was typed if it is a model."""
    words = typed.lower().split()
    found = [it for it in offers if all(word in _searched(it) for word in words)]
    extra = typed_offer(typed) if words else None
    if extra is not None and all(not same(it.model, extra.model) for it in offers):
        found.append(extra)
    return found


def _searched(offer: ModelOffer) -> str:
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


def named_pair(argument: str, known: Sequence[Entry]) -> tuple[str | None, str | None]:
    """A pair of the catalogue by its name, or a target and perhaps a draft, folders or ids.

    Args:
        known: the catalogue.

    Returns:
        The target, None for the built-in pair, and the draft, None for none.

    Raises:
        BadOptionError: they name no pair.
    """
    try:
        words = shlex.split(argument)
    except ValueError:
        words = []
    if not 1 <= len(words) <= 2:
        raise BadOptionError("name a pair, or a target and a draft with a space between")
    target, draft = os.path.expanduser(words[0]), words[-1] if len(words) == 2 else None
    if target == BUILT_IN_NAME:
        return None, None
    if "/" not in target and not os.path.isdir(target):
        entry = find(target, known)
        target, draft = entry.target, draft or entry.draft
    return target, None if draft in (None, NO_DRAFT) else os.path.expanduser(draft)


WHAT = (
    "macspec is a chat with language models that run on this machine. A small draft model guesses "
    "ahead, the large target model checks several guesses in one pass: the text is the target's "
    "own, only sooner. The panel shows how that goes, and you can turn it while it writes."
)

PRIVATE = "Nothing you write leaves this machine."


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pair that fits this machine best."""

    entry: Entry | None
    """None: none of the catalogue does."""
    memory: int
    """Bytes of the machine."""

    def lines(self) -> list[str]:
        """What to say about it, a sentence or two each."""
        has = f"{self.memory / GIB:.0f} GB of memory"
        built_in = "The pair that is built in answers at once, but is tiny: small talk, not facts."
        if self.entry is None:
            return [built_in, f"No pair of the catalogue fits this machine ({has})."]
        it = self.entry
        draft = "" if it.draft is None else f" with the draft model {it.draft}"
        size = "" if it.download is None else f" It would download {it.download:.1f} GB"
        needs = "" if it.memory_8k is None else f" and need {it.memory_8k:.1f} GB of memory"
        return [
            built_in,
            f"A real one that fits this machine ({has}) is {it.name}: {it.target}{draft}."
            + (f"{size}{needs}." if size else ""),
        ]


def proposal() -> Proposal:
    """The one for this machine; quick, and asks nobody."""
    memory = unified_memory()
    return Proposal(best(memory, working_set()), memory)
