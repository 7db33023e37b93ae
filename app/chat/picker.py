"""The models to choose from, without MLX and the network. All texts are neutral."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from macspec.config.schema import BUILT_IN as BUILT_IN_NAME
from macspec.config.schema import NONE as NO_DRAFT
from macspec.config.schema import Config
from macspec.errors import BadOptionError
from macspec.models.catalog import (
    CONTEXT,
    USES,
    Entry,
    advised_head,
    best,
    catalogue,
    drafts_with,
    find,
    licence,
    plain_name,
)
from macspec.models.machine import GIB, unified_memory, working_set
from macspec.models.progress import size
from macspec.models.scan import FoundModel
from macspec.models.sidecars import label
from macspec.plaintext import one_line
from macspec.worker import PairChoice

from .background import Download, ModelScan

BUILT_IN, HERE, FOLDER, INCOMPLETE = "built in", "downloaded", "folder", "incomplete"
ABSENT, TYPED, NONE = "to download", "as typed", "none"
"""Where a model is."""

WHAT = (
    "macspec is a chat with language models that run on this machine. A small draft model guesses "
    "ahead, and the large target model verifies several guesses in one pass: the same text, just "
    "faster. The panel shows how that works out, and you can adjust it while a reply streams."
)

IN_BRIEF = "A chat with models on this machine: the same text, just faster."

ADVISED = "recommended in the catalogue"

PRIVATE = "Nothing you write leaves this machine."


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
            note="a tiny pair for small talk",
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
            current=_same(self.current.target, target.model) and self.current.draft is None,
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
        return filtered(sorted([*here, *absent, none], key=_rank), typed)

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
            _display_name(it.name),
            where,
            it.size,
            note="" if opened is not None or self.scan.complete else "checking",
            pairs=tuple(entry for entry in self.known if entry.target == it.name),
            current=_same(self.current.target, it.name),
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
        offer = ModelOffer(name, _display_name(name), ABSENT, pairs=entries)
        return replace(offer, size=next(sizes, None), note=f"{label(method)}, {ADVISED}")

    def _draft(self, target: ModelOffer, it: FoundModel, entry: Entry | None) -> ModelOffer:
        assert target.model is not None
        offer = replace(
            self._found(it),
            memory=None,
            fits=None,
            pairs=() if entry is None else (entry,),
            current=_same(self.current.target, target.model) and _same(self.current.draft, it.name),
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
            current=_same(self.current.target, entry.target),
        )

    def _absent(self, model: str, entry: Entry) -> ModelOffer:
        return ModelOffer(
            model,
            _display_name(model),
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


def _rank(draft: ModelOffer) -> tuple[int, bool, str]:
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
    if extra is not None and not any(_same(it.model, extra.model) for it in offers):
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
        return ModelOffer(folder, _display_name(folder), FOLDER, reason=reason)
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
    if target == BUILT_IN_NAME:
        return None, None
    if "/" not in target and not os.path.isdir(target):
        entry = find(target, known)
        target, draft = entry.target, draft or entry.draft
    return target, None if draft in (None, NO_DRAFT) else os.path.expanduser(draft)


def _searched(offer: ModelOffer) -> str:
    names = (name for it in offer.pairs for name in (it.name, *it.models))
    return " ".join([offer.name, offer.model or "", offer.where, *names]).lower()


def _same(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return os.path.expanduser(one) == os.path.expanduser(other)


def _display_name(model: str) -> str:
    path = PurePath(model)
    return one_line(f"{path.name} ({path.parent})" if path.is_absolute() else model)


def _memory(count: float) -> str:
    return f"{count / GIB:.1f} GB" if count >= 0.1 * GIB else f"{count / 2**20:.0f} MB"


def proposal() -> list[str]:
    """What to say about a pair for this machine, a sentence or two each; quick and offline."""
    memory, limit = unified_memory(), working_set()
    return proposed(best(memory, limit), memory, best(memory, limit, "code"))


def proposed(entry: Entry | None, memory: int, code: Entry | None = None) -> list[str]:
    """The same for the best pair of the catalogue (None: none fits), the machine's bytes, and the
    best pair to write code."""
    has = f"{memory / GIB:.0f} GB of memory"
    built_in = "The built-in pair starts instantly but only does small talk."
    if entry is None:
        return [built_in, f"No pair in the catalogue fits this machine ({has})."]
    head, name = drafts_with(entry) or (None, None)
    draft = "" if name is None else f" with the {label(head) if head else 'draft model'} {name}"
    size = "" if entry.download is None else f" It would download {entry.download:.1f} GB"
    needs = "" if entry.memory_8k is None else f" and need {entry.memory_8k:.1f} GB of memory"
    return [
        built_in,
        f"The recommended pair for this machine ({has}) is {entry.name}: {entry.target}{draft}."
        + (f"{size}{needs}." if size else "")
        + (f" To write code, {code.name}." if code is not None and code != entry else ""),
    ]
