"""The pairs that a view loads: the first one, and those that the user switches to."""

from __future__ import annotations

import os
from collections.abc import Sequence

from macspec.events import Notice
from macspec.models.sidecars import label
from macspec.worker import Failed, Loaded, LoadProgress, PairChoice

from .chat.picker import ModelPicker
from .view import View

BUILT_IN_NOTICE = "using the small built-in pair"
"""Begins what the engine says of that pair; to newcomers the front ends say it themselves."""


class Loading:
    """Loads pairs, and says how that goes on.

    Args:
        pairs: those to load at the start: the first that can be loaded.
    """

    def __init__(self, view: View, pairs: Sequence[PairChoice]) -> None:
        self._view, self._conversation = view, view.conversation
        self.choice, self._first = pairs[0], pairs
        """The pair that was loaded last, at first the one that is to be."""
        self._picker: ModelPicker | None = None

    async def load_first(self) -> None:
        """Load the first pair that can be loaded."""
        for choice in self._first:
            severity = "error" if choice == self._first[-1] else "warning"
            if await self.load(choice, severity, first=True):
                break

    async def load(self, choice: PairChoice, severity: str = "error", first: bool = False) -> bool:
        """Load a pair, or switch to it; returns whether it is there, else the previous one stays.

        Args:
            severity: of a failure.
            first: nobody asked for this pair, so only failures are reported.
        """
        before, there = self._conversation.setup.choice, False
        async for event in self._conversation.setup.load(choice):
            match event:
                case Notice(line) if line.startswith(BUILT_IN_NOTICE):
                    pass
                case Notice() | LoadProgress():
                    self._view.loading(event)
                case Failed("stopped"):
                    stays = "" if before is None else "; still using the previous pair"
                    self._view.notice(f"loading stopped{stays}")
                case Failed():
                    self._view.notice(event.message, severity)
                case Loaded():
                    there, self.choice = True, choice
                    if self._picker is not None:
                        self._picker.current = choice
                    if not first:
                        pair = event.pair
                        head = None if pair.head is None else label(pair.head)
                        drafters = " and ".join(it for it in (pair.draft, head) if it)
                        self._view.notice(
                            f"now using {pair.target}{f' with {drafters}' if drafters else ''}"
                        )
        return there

    @property
    def picker(self) -> ModelPicker:
        """The pairs to choose from; listed when they are first asked for."""
        if self._picker is None:
            used = self._conversation.store.last_models().values()
            folders = {name for name in used if name is not None and os.path.isabs(name)}
            self._picker = ModelPicker(self._conversation.config, self.choice, sorted(folders))
            self._picker.ended = lambda download: self._view.notice(download.line())
        return self._picker
