"""Which targets and drafts there are to choose from, and what speaks for and against each.

All texts are neutral. Nothing here imports MLX or asks the network by itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from macspec.config import Config
from macspec.config.schema import BUILT_IN as BUILT_IN_NAME
from macspec.errors import BadOptionError
from macspec.models.catalog import Entry, best, catalogue
from macspec.models.findings import Found
from macspec.models.machine import GIB, unified_memory
from macspec.plaintext import one_line
from macspec.worker import PairChoice

from .download import Download
from .namedpair import named_pair
from .offers import (
    BUILT_IN,
    FETCH,
    FOLDER,
    HERE,
    NONE,
    UNFINISHED,
    Offer,
    filtered,
    named,
    same,
)
from .surveying import Survey


class Pairs:
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
        survey: Survey | None = None,
    ) -> None:
        self.current = current
        self.known = catalogue(config.pairs)
        self.survey = survey or Survey()
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

    def targets(self, typed: str = "") -> list[Offer]:
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
            Offer(
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

    def drafts(self, target: Offer, typed: str = "") -> list[Offer]:
        """Drafts for a target: what the catalogue says first, what cannot draft for it last."""
        assert target.model is not None
        advised = {it.draft: it for it in reversed(target.pairs) if it.draft is not None}
        none = Offer(
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

    def choice(self, target: Offer, draft: Offer | None) -> PairChoice:
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

    def absent(self, *offers: Offer | None) -> list[str]:
        """The ids that have to be fetched for offers."""
        return [it.model for it in offers if it is not None and it.absent and it.model is not None]

    def to_fetch(self, target: Offer, draft: Offer | None) -> str:
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

    def _found(self, it: Found) -> Offer:
        opened = self.survey.opened.get(it.name)
        entries = tuple(entry for entry in self.known if entry.target == it.name)
        where = FOLDER if PurePath(it.name).is_absolute() else HERE
        note = "" if opened is not None or self.survey.whole else "looking at it"
        offer = Offer(
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

    def _draft(self, target: Offer, it: Found, entry: Entry | None) -> Offer:
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

    def _fetchable(self, entry: Entry) -> Offer:
        limit = self.survey.limit
        proposed = limit is not None and best(unified_memory(), limit) == entry
        entries = tuple(it for it in self.known if it.target == entry.target)
        return Offer(
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

    def _fetchable_draft(self, target: Offer, entry: Entry) -> Offer:
        assert entry.draft is not None
        return Offer(
            entry.draft,
            named(entry.draft),
            FETCH,
            memory=None if entry.memory_8k is None else entry.memory_8k * GIB,
            fits=None if self.survey.limit is None else entry.fits(self.survey.limit),
            note="drafts for it, by the catalogue",
            pairs=(entry,),
        )
