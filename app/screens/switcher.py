"""Choosing a target and its draft, with a download where they are not here yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from macspec.errors import MacspecError
from macspec.models.machine import GIB, working_set
from macspec.worker import PairChoice

from ..chat.background import DONE, Download
from ..chat.picker import BUILT_IN, ModelOffer, ModelPicker
from .box import MUTED, Box, Confirm, Rows, Search

INTERVAL = 0.2
"""Seconds between two looks at what a survey or a download has brought."""


class Switcher(Box[PairChoice | None]):
    """Targets, then drafts for the one that was chosen; the result is the pair to load.

    Args:
        pairs: what there is. A download that was begun here goes on when the screen is left.
    """

    heading = "Models: choose a target"

    DEFAULT_CSS = """
    Switcher {
        #fetching { height: auto; max-height: 2; display: none; color: $text-accent; }
        ProgressBar { display: none; width: 100%; & > Bar { width: 1fr; } }
        &.-fetching { #fetching, ProgressBar { display: block; } }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("slash", "search", "Search"),
        Binding("c", "cancel", "Cancel the download"),
    ]

    def __init__(self, pairs: ModelPicker) -> None:
        super().__init__()
        self._pairs = pairs
        self._offers: Sequence[ModelOffer] = ()
        self._target: ModelOffer | None = None
        """The chosen one; None while there is none."""
        self._awaited: tuple[Download, PairChoice] | None = None
        """What is loaded when its download is done."""
        self._notice: tuple[str | None, str] | None = None
        """The row at which something went wrong, and what is said where it is chosen."""
        self._seen: object = None

    def inside(self) -> ComposeResult:
        yield Search(placeholder="type to filter; owner/name, or a folder", compact=True)
        yield Rows(markup=False, compact=True)
        yield Static("", id="fetching", markup=False)
        yield ProgressBar(1, show_eta=False, show_percentage=False)

    def on_mount(self) -> None:
        self._show(first=True)
        self._hint()
        self.run_worker(self._look(), group="survey", exclusive=True)
        self.set_interval(INTERVAL, self._refresh)

    # What is there.

    async def _look(self) -> None:
        survey = self._pairs.survey
        if survey.limit is None:
            survey.limit = await asyncio.to_thread(working_set)
        async for _ in survey.run(self._pairs.folders):
            self._seen = None
        self._seen = None

    def _refresh(self) -> None:
        """Show what has changed since the last time."""
        if self._seen is None:
            self._show()
        self._watch()

    def _show(self, *, first: bool = False) -> None:
        """Show the rows of this step; the chosen one stays chosen, at first what is loaded."""
        self._seen = self._offers
        typed = self.query_one(Search).value
        target = self._target
        chosen = self._chosen()
        offers = self._pairs.targets(typed) if target is None else self._pairs.drafts(target, typed)
        self._offers = offers
        it = self.query_one(Rows)
        it.set_options([Option(self._line(offer)) for offer in offers])
        keys = [offer.model for offer in offers]
        place = 0
        if first or chosen is None:
            place = next((n for n, offer in enumerate(offers) if offer.current), 0)
        elif chosen.model in keys:
            place = keys.index(chosen.model)
        it.highlighted = place if offers else None
        limit = self._pairs.survey.limit
        room = "" if limit is None else f"{limit / GIB:.1f} GB for models"
        self.query_one("#box").border_subtitle = Content(room)
        self._explain()

    def _line(self, offer: ModelOffer) -> Content:
        mark = "▸ " if offer.current else "  "
        style = "bold" if offer.usable else MUTED
        return Content.assemble(mark, (offer.name, style), "\n  ", (offer.facts, MUTED))

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        """Say more about the chosen row than it has room for."""
        offer, survey = self._chosen(), self._pairs.survey
        if self._notice is not None and self._notice[0] == _model(offer):
            self.status(self._notice[1], "warning")
        elif survey.trouble:
            self.status(survey.trouble, "error")
        elif offer is None:
            self.status("nothing is found; owner/name or a folder can be typed too")
        elif not survey.listed:
            self.status("looking at what is on this machine")
        else:
            untried = offer.pairs and all(entry.loaded is None for entry in offer.pairs)
            nobody = "nobody has loaded it with macspec yet" if untried and offer.absent else ""
            parts = (offer.facts if self.has_class("-tight") else offer.reason, nobody)
            self.status("; ".join(part for part in parts if part))

    def _hint(self) -> None:
        back = "back" if self._target is not None else "close"
        if self._awaited is not None:
            self.hint(("c", "cancel the download"), ("Esc", "close; it goes on"))
        elif self.query_one(Search).has_focus:
            self.hint(("Enter", "choose"), ("↓ Tab", "to the list"), ("Esc", back))
        else:
            download = self._pairs.download
            more = [("c", "cancel the download")] if download and download.active else []
            self.hint(("Enter", "choose"), ("/", "filter"), ("Esc", back), *more)

    def on_descendant_focus(self) -> None:
        self._hint()

    # Choosing.

    @on(Input.Changed)
    def _typed(self) -> None:
        self._show()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        offer = self._chosen()
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
        """Leave with a pair, once all of it is here."""
        choice = self._pairs.choice(target, draft)
        names = self._pairs.absent(target, draft)
        if not names:
            self.dismiss(choice)
            return
        download = self._pairs.download
        if download is None or not download.active or set(download.names) != set(names):
            question = f"Fetch {self._pairs.to_fetch(target, draft)} from the Hugging Face hub?"
            if False in (target.fits, draft is not None and draft.fits):
                question += " It is too large for this machine at 8192 positions."
            if not await self.app.push_screen_wait(Confirm(question, title="Fetch", yes="fetch")):
                return
            try:
                download = self._pairs.fetch(names)
            except MacspecError as error:
                self._warn(str(error))
                return
        self._awaited = download, choice
        self.query_one(Rows).focus()
        self._hint()

    def _step(self, target: ModelOffer | None) -> None:
        """Go on to the drafts for a target; None: back to the targets."""
        self._target, self._notice = target, None
        self.entitle(self.heading if target is None else f"Models: a draft for {target.name}")
        self.query_one(Search).value = ""
        self._show(first=True)
        self._hint()

    # Downloading.

    def _watch(self) -> None:
        """Show how the download is; leave when it was waited for and is done."""
        download = self._pairs.download
        self.set_class(download is not None and download.active, "-fetching")
        if download is not None and download.active:
            self.query_one("#fetching", Static).update(download.line())
            self.query_one(ProgressBar).update(total=download.total or 1, progress=download.done)
        if self._awaited is None or self._awaited[0].active:
            return
        download, choice = self._awaited
        self._awaited = None
        self._hint()
        if download.state == DONE:
            self.dismiss(choice)
        else:
            self._warn(download.line())

    def action_cancel(self) -> None:
        if self._pairs.download is not None:
            self._pairs.download.cancel()

    def _warn(self, line: str) -> None:
        """Say what went wrong with the chosen row; what a survey brings does not take it away."""
        self._notice = _model(self._chosen()), line
        self._explain()

    # Leaving.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Plain letters are text while the filter has the focus."""
        return not (action in ("search", "cancel") and self.query_one(Search).has_focus)

    def action_search(self) -> None:
        self.query_one(Search).focus()

    def action_back(self) -> None:
        if self._target is not None and self._awaited is None:
            self._step(None)
        else:
            self.dismiss(None)

    def _chosen(self) -> ModelOffer | None:
        at = self.query_one(Rows).highlighted
        return None if at is None or at >= len(self._offers) else self._offers[at]


def _model(offer: ModelOffer | None) -> str | None:
    return None if offer is None else offer.model
