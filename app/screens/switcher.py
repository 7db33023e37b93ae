"""The model picker: choosing a target and its draft, and downloading them if necessary."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Input, OptionList, ProgressBar, Static

from macspec.errors import MacspecError
from macspec.models.machine import GIB, working_set
from macspec.worker import PairChoice

from ..chat.background import Download
from ..chat.offers import BUILT_IN, ModelOffer
from ..chat.picker import ModelPicker
from .box import MUTED, Confirm, ListBox, Rows, Search

INTERVAL = 0.2
"""Seconds between two updates from the scan and the download."""


class Switcher(ListBox[PairChoice | None, ModelOffer]):
    """Targets, then drafts for the chosen one; the result is the pair to load.

    A download that was started here continues when the screen is closed. ``guided``: the best pair
    for this machine is proposed at once.
    """

    heading = "Models: choose a target"

    DEFAULT_CSS = """
    Switcher {
        #download { height: auto; max-height: 2; display: none; color: $text-accent; }
        ProgressBar { display: none; width: 100%; & > Bar { width: 1fr; } }
        &.-downloading { #download, ProgressBar { display: block; } }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("c", "cancel", "Cancel the download"),
    ]
    letters = ("cancel",)
    placeholder = "type to filter, or enter owner/name or a folder"

    def __init__(self, pairs: ModelPicker, *, guided: bool = False) -> None:
        super().__init__()
        self._pairs, self._guided = pairs, guided
        self._target: ModelOffer | None = None
        self._awaited: tuple[Download, PairChoice] | None = None
        """The pair to load when its download is done."""
        self._notice: tuple[str | None, str] | None = None
        """The model for which something went wrong, and what."""
        self._changed = False
        """Whether the scan has found something that is not shown yet."""

    def inside(self) -> ComposeResult:
        yield from super().inside()
        yield Static("", id="download", markup=False)
        yield ProgressBar(1, show_eta=False, show_percentage=False)

    def on_mount(self) -> None:
        if not self.query(Search):
            return  # Esc was faster.
        self._show(first=True)
        self._hint()
        self.run_worker(self._scan(), group="scan", exclusive=True)
        self.set_interval(INTERVAL, self._refresh)

    async def _scan(self) -> None:
        scan = self._pairs.scan
        if scan.limit is None:
            scan.limit = await asyncio.to_thread(working_set)
        async for _ in scan.run(self._pairs.folders):
            self._changed = True
        if self._guided:
            self.run_worker(self._guide(), group="take", exclusive=True)

    async def _guide(self) -> None:
        """Propose the best pair."""
        best = self._pairs.best()
        if best is None:
            self._warn("no pair in the catalogue fits this machine; choose a model yourself")
        elif not self._pairs.absent(*best):
            question = self._pairs.question(*best)
            if await self.app.push_screen_wait(Confirm(question, title="Set up", yes="use it")):
                target, draft = best
                self.dismiss(self._pairs.choice(target.model, draft.model if draft else None))
        else:
            await self._take(*best)

    def _refresh(self) -> None:
        if not self.query(Search):
            return  # It is being closed.
        if self._changed:
            self._show()
        self._watch()

    def _show(self, *, first: bool = False) -> None:
        """Show the rows of this step; highlight the same one as before, at first the loaded one."""
        self._changed = False
        typed = self.query_one(Search).value
        target, chosen = self._target, self.chosen
        offers = self._pairs.targets(typed) if target is None else self._pairs.drafts(target, typed)
        keys = [offer.model for offer in offers]
        place = 0
        if first or chosen is None:
            place = next((n for n, offer in enumerate(offers) if offer.current), 0)
        elif chosen.model in keys:
            place = keys.index(chosen.model)
        self.show_rows(offers, place)
        limit = self._pairs.scan.limit
        room = "" if limit is None else f"{limit / GIB:.1f} GB for models"
        self.query_one("#box").border_subtitle = Content(room)
        self._explain()

    def line(self, offer: ModelOffer) -> Content:
        mark = "▸ " if offer.current else "  "
        style = "bold" if offer.usable else MUTED
        return Content.assemble(mark, (offer.name, style), "\n  ", (offer.facts, MUTED))

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        """Say more about the highlighted row than it has room for."""
        offer, scan = self.chosen, self._pairs.scan
        model = None if offer is None else offer.model
        if self._notice is not None and self._notice[0] == model:
            self.status(self._notice[1], "warning")
        elif scan.trouble:
            self.status(scan.trouble, "error")
        elif offer is None:
            self.status("no matches; you can also type owner/name or a folder")
        elif not scan.listed:
            self.status("scanning this machine for models")
        else:
            untried = offer.pairs and all(entry.loaded is None for entry in offer.pairs)
            untested = "untested; sizes are estimates" if untried and offer.absent else ""
            parts = (offer.facts if self.has_class("-tight") else offer.reason, untested)
            self.status("; ".join(part for part in parts if part))

    @on(DescendantFocus)
    def _hint(self) -> None:
        back = "back" if self._target is not None else "close"
        if self._awaited is not None:
            self.hint(("c", "cancel the download"), ("Esc", "close, keep downloading"))
        elif self.searching:
            self.hint(("Enter", "choose"), ("↓ Tab", "to the list"), ("Esc", back))
        else:
            download = self._pairs.download
            more = [("c", "cancel the download")] if download and download.active else []
            self.hint(("Enter", "choose"), ("/", "filter"), ("Esc", back), *more)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._show()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        offer = self.chosen
        if offer is None or self._awaited is not None:
            return
        self._notice = None
        if not offer.usable:
            self._warn(offer.reason)
        elif self._target is None and offer.where != BUILT_IN:
            self._step(offer)
        else:
            target = self._target or offer
            draft = offer if self._target is not None else None
            self.run_worker(self._take(target, draft), group="take", exclusive=True)

    async def _take(self, target: ModelOffer, draft: ModelOffer | None) -> None:
        choice = self._pairs.choice(target.model, None if draft is None else draft.model)
        names = self._pairs.absent(target, draft)
        if not names:
            self.dismiss(choice)
            return
        download = self._pairs.download
        if download is None or not download.active or set(download.names) != set(names):
            question = self._pairs.question(target, draft)
            if not await self.app.push_screen_wait(
                Confirm(question, title="Download", yes="download")
            ):
                return
            try:
                download = self._pairs.start_download(names)
            except MacspecError as error:
                self._warn(str(error))
                return
        self._awaited = download, choice
        self.query_one(Rows).focus()
        self._hint()

    def _step(self, target: ModelOffer | None) -> None:
        """Show the drafts for a target; None: go back to the targets."""
        self._target, self._notice = target, None
        title = self.heading if target is None else f"Models: a draft for {target.name}"
        self.query_one("#box").border_title = Content(title)
        self.query_one(Search).value = ""
        self._show(first=True)
        self._hint()

    def _watch(self) -> None:
        """Show the progress of the download; close when it is done and was waited for."""
        download = self._pairs.download
        self.set_class(download is not None and download.active, "-downloading")
        if download is not None and download.active:
            self.query_one("#download", Static).update(download.line())
            self.query_one(ProgressBar).update(total=download.total or 1, progress=download.done)
        if self._awaited is None or self._awaited[0].active:
            return
        download, choice = self._awaited
        self._awaited = None
        self._hint()
        if download.state == "done":
            self.dismiss(choice)
        else:
            self._warn(download.line())

    def action_cancel(self) -> None:
        if self._pairs.download is not None:
            self._pairs.download.cancel()

    def _warn(self, line: str) -> None:
        """Say what went wrong with the highlighted row; results of the scan do not hide it."""
        self._notice = None if self.chosen is None else self.chosen.model, line
        self._explain()

    def action_back(self) -> None:
        if self._target is not None and self._awaited is None:
            self._step(None)
        else:
            self.dismiss(None)
