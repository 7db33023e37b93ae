"""The models to choose from, without MLX and the network. All texts are neutral."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from macspec.config.schema import BUILT_IN as BUILT_IN_NAME
from macspec.config.schema import Config
from macspec.errors import BadOptionError
from macspec.models.catalog import (
    CONTEXT,
    USES,
    Entry,
    advised_head,
    best,
    catalogue,
    licence,
    plain_name,
)
from macspec.models.machine import GIB, unified_memory
from macspec.models.progress import size
from macspec.models.scan import FoundModel
from macspec.models.sidecars import label
from macspec.plaintext import one_line
from macspec.worker import PairChoice

from .background import Download, ModelScan
from .offers import (
    ABSENT,
    BUILT_IN,
    FOLDER,
    HERE,
    INCOMPLETE,
    NONE,
    ModelOffer,
    display_name,
    filtered,
    named_pair,
    rank,
    same_model,
)

ADVISED = "recommended in the catalogue"


class ModelPicker:
    """The targets and drafts to choose from; BadOptionError: a pair of the settings is invalid.

    Args:
        current: the pair that is loaded.
        folders: model folders that were used before.
    """

    def __init__(self, config: Config, current: PairChoice, folders: Iterable[str] = ()) -> None:
        self.current = current
        self.known = catalogue(config.pairs)
        self.scan = ModelScan()
        self.download: Download | None = None
        """The one that runs, or that ended last."""
        self.ended: Callable[[Download], None] = lambda download: None
        """Called when a download has ended."""
        self._downloading: asyncio.Task[None] | None = None
        self._models = config.models
        self._folders = tuple(folders)

    @property
    def folders(self) -> tuple[str, ...]:
        own = (self._models.target, self._models.draft, self.current.target, self.current.draft)
        every = (*(name for name in own if name), *self._folders)
        paths = (*map(os.path.expanduser, every), *lm_studio())
        return tuple(dict.fromkeys(path for path in paths if os.path.isdir(path)))

    def targets(self, typed: str = "") -> list[ModelOffer]:
        """The built-in pair, then the models on this machine, then those of the catalogue; only
        those that contain the typed words. A typed folder or id is offered too."""
        here = [self._found(it) for it in self.scan.found.values() if not self._head(it.name)]
        here.sort(key=lambda it: (it.where == INCOMPLETE, it.name.lower()))
        names = {it.model for it in here}
        first = {entry.target: entry for entry in reversed(self.known)}.values()
        built_in = ModelOffer(
            None,
            "built-in",
            BUILT_IN,
            fits=True,
            note="for small talk, with a drafting head",
            current=self.current.target is None,
        )
        absent = [self._absent_target(it) for it in reversed(first) if it.target not in names]
        return filtered([built_in, *here, *absent], typed)

    def drafts(self, target: ModelOffer, typed: str = "") -> list[ModelOffer]:
        """Drafts for a target: recommended ones first, those that cannot draft for it last."""
        assert target.model is not None
        advised = {it.draft: it for it in reversed(target.pairs) if it.draft is not None}
        opened = self.scan.opened.get(target.model)
        brings = None if opened is None else opened.brings
        none = ModelOffer(
            None,
            "no draft model",
            NONE,
            note="repeated text is still drafted"
            if brings is None
            else f"its {label(brings)} drafts",
            current=same_model(self.current.target, target.model) and self.current.draft is None,
        )
        here = [
            self._draft(target, it, advised.get(it.name))
            for it in self.scan.found.values()
            if it.name != target.model
        ]
        names = {it.model for it in here}
        absent = [
            replace(self._absent(draft, entry), note=ADVISED, pairs=(entry,))
            for draft, entry in advised.items()
            if draft not in names
        ]
        head = self._advised_head(target.model)
        if head is not None and head.model not in names and brings is None:
            absent.insert(0, head)
        return filtered(sorted([*here, *absent, none], key=rank), typed)

    def best(self) -> tuple[ModelOffer, ModelOffer | None] | None:
        """The pair to set up, once the scan is complete: the largest target on this machine that
        fits, those with a draft model first; without any the catalogue's proposal. None: no pair
        fits."""
        found: list[tuple[bool, float, ModelOffer, ModelOffer | None]] = []
        for it in self.targets():
            if it.usable and it.fits and it.where in (HERE, FOLDER):
                drafts = (draft for draft in self.drafts(it) if draft.verified and draft.fits)
                draft = next(drafts, None)
                found.append((draft is not None, it.memory or 0.0, it, draft))
        if found:
            *_, target, draft = max(found, key=lambda each: each[:2])
            return target, draft
        entry = None if self.scan.limit is None else best(unified_memory(), self.scan.limit)
        for it in self.targets():
            if entry is not None and it.absent and it.model == entry.target:
                drafts = (draft for draft in self.drafts(it) if draft.pairs and draft.absent)
                return it, next(drafts, None)
        return None

    def choice(self, target: str | None, draft: str | None) -> PairChoice:
        """A pair as it is loaded with the settings; None: the built-in one, or no draft."""
        return replace(
            self.current,
            target=target,
            draft=draft,
            context=self._models.context,
            kv_bits=self._models.kv_bits,
            require_draft=False,
        )

    def asked(self, argument: str) -> PairChoice:
        """The pair that the words of a command name; raises as ``named_pair``."""
        return self.choice(*named_pair(argument, self.known))

    def names(self) -> list[tuple[str, str]]:
        """What can be named in a command, each with its facts."""
        names = {it.target: it.name for it in reversed(self.known)}
        return [
            (BUILT_IN_NAME if it.model is None else names.get(it.model, it.model), it.facts)
            for it in self.targets()
            if it.usable
        ]

    def absent(self, *offers: ModelOffer | None) -> list[str]:
        """The ids that have to be downloaded for offers."""
        return [it.model for it in offers if it is not None and it.absent and it.model is not None]

    def to_download(self, target: ModelOffer, draft: ModelOffer | None) -> str:
        """What a download would bring, in words."""
        names = self.absent(target, draft)
        sizes = [
            it.download
            for it in target.pairs
            if it.draft == (draft and draft.model) and it.download is not None
        ]
        total = f", about {sizes[0]:.1f} GB" if sizes and len(names) == 2 else ""
        known = {} if draft is None or draft.size is None else {draft.model: size(draft.size)}
        parts = [one_line(it) + (f" ({known[it]})" if it in known else "") for it in names]
        return f"{' and '.join(parts)}{total}"

    def question(self, target: ModelOffer, draft: ModelOffer | None) -> str:
        """What is asked before a pair is set up."""
        if not self.absent(target, draft):
            helper = "" if draft is None else f" with the draft model {draft.name}"
            return f"Use {target.name}{helper}? It is on this machine and fits its memory."
        question = f"Download {self.to_download(target, draft)} from the Hugging Face hub?"
        if False in (target.fits, draft is not None and draft.fits):
            question += f" It is too large for this machine at context {CONTEXT}."
        return f"{question} {self.licences(target, draft)}"

    def licences(self, target: ModelOffer, draft: ModelOffer | None) -> str:
        """The licences of what a download would bring, in a sentence."""
        found = [one_line(licence(name, self.known)) for name in self.absent(target, draft)]
        return f"Licence: {'; '.join(dict.fromkeys(found))}."

    def start_download(self, names: Sequence[str]) -> Download:
        """Start a download, which continues whatever the screen shows; BadOptionError: another one
        is running."""
        if self.download is not None and self.download.active:
            raise BadOptionError("another download is running: wait for it, or cancel it")
        self.download = Download(names)
        self._downloading = asyncio.create_task(self._follow(self.download))
        return self.download

    async def _follow(self, download: Download) -> None:
        async for _ in download.run():
            pass
        self.ended(download)

    def _found(self, it: FoundModel) -> ModelOffer:
        opened = self.scan.opened.get(it.name)
        where = FOLDER if PurePath(it.name).is_absolute() else HERE
        offer = ModelOffer(
            it.name,
            display_name(it.name),
            where,
            it.size,
            note="" if opened is not None or self.scan.complete else "checking",
            pairs=tuple(entry for entry in self.known if entry.target == it.name),
            current=same_model(self.current.target, it.name),
        )
        if it.missing is not None:
            # A download can be resumed; a folder cannot be completed.
            reason = "" if where == HERE else one_line(it.missing)
            return replace(offer, where=INCOMPLETE, note="", reason=reason)
        if opened is None:
            return offer
        offer = replace(offer, memory=opened.memory, positions=opened.positions, fits=opened.fits)
        reason = one_line(opened.reason or "")
        if opened.context is None:
            return replace(offer, reason=reason or "cannot be loaded")
        return replace(offer, note=reason)

    def _head(self, name: str) -> str | None:
        """The drafting method of a head; None for a model."""
        opened = self.scan.opened.get(name)
        return None if opened is None else opened.head

    def _advised_head(self, target: str) -> ModelOffer | None:
        """The head that the catalogue has for a target, where all of its repository is needed."""
        found = advised_head(target, self.known)
        if found is None or plain_name(found[1]) == plain_name(target):
            return None
        method, name = found
        entries = tuple(it for it in self.known if name in it.heads.values())
        sizes = (
            it.head_sizes[kind] * 1e9
            for it in entries
            for kind, own in it.heads.items()
            if own == name and kind in it.head_sizes
        )
        offer = ModelOffer(name, display_name(name), ABSENT, pairs=entries)
        return replace(offer, size=next(sizes, None), note=f"{label(method)}, {ADVISED}")

    def _draft(self, target: ModelOffer, it: FoundModel, entry: Entry | None) -> ModelOffer:
        assert target.model is not None
        offer = replace(
            self._found(it),
            memory=None,
            fits=None,
            pairs=() if entry is None else (entry,),
            current=same_model(self.current.target, target.model)
            and same_model(self.current.draft, it.name),
        )
        head = self._head(it.name)
        kind = f"{label(head)}, " if head else ""
        if head:
            offer = replace(offer, reason="")
        if not offer.usable or offer.where == INCOMPLETE:
            return offer
        fit = self.scan.fits.get((target.model, it.name))
        if fit is not None and fit.reason is None:
            return replace(
                offer,
                memory=fit.memory,
                positions=fit.positions,
                fits=fit.fits,
                note=f"{kind}made for {fit.made_for}" if fit.made_for else f"{kind}compatible",
                verified=True,
                own_head=head is not None and fit.made_for is None,
            )
        if fit is not None:
            return replace(offer, reason=one_line(fit.reason or ""), note="")
        if (it.name, target.model) in self.scan.fits:
            return replace(offer, reason="larger than the target", note="")
        if self.scan.complete and target.where in (HERE, FOLDER):
            return replace(offer, reason="not smaller than the target", note="")
        return replace(offer, note=ADVISED if entry is not None else "not checked yet")

    def _absent_target(self, entry: Entry) -> ModelOffer:
        limit = self.scan.limit
        memory = unified_memory()
        uses = [use for use in USES if limit is not None and best(memory, limit, use) == entry]
        return replace(
            self._absent(entry.target, entry),
            name=one_line(entry.name),
            size=None if entry.download is None else entry.download * 1e9,
            note=(f"recommended here for {' and '.join(uses)}: " if uses else "")
            + one_line(" + ".join(entry.models)),
            pairs=tuple(it for it in self.known if it.target == entry.target),
            current=same_model(self.current.target, entry.target),
        )

    def _absent(self, model: str, entry: Entry) -> ModelOffer:
        return ModelOffer(
            model,
            display_name(model),
            ABSENT,
            memory=None if entry.memory_8k is None else entry.memory_8k * GIB,
            fits=None if self.scan.limit is None else entry.fits(self.scan.limit),
        )


def lm_studio() -> list[str]:
    """Model folders of LM Studio."""
    homes = (
        Path(base).expanduser() for base in ("~/.lmstudio/models", "~/.cache/lm-studio/models")
    )
    return [str(it.parent) for home in homes for it in sorted(home.glob("*/*/config.json"))]
