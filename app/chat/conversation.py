"""A conversation with an engine and a store: what the screen and line mode have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from macspec.worker import PairChoice, Tuning

from ..panel.state import PanelState
from .chatting import Chatting
from .loading import LoadUpdate
from .replies import Replies
from .tuning import described
from .updates import Began, Changed, Dropped, Ended, Told, Update

__all__ = ["Began", "Changed", "Conversation", "Dropped", "Ended", "Told", "Update"]


class Conversation(Chatting, Replies):
    """One conversation at a time. All calls from one event loop; what is not ``async`` is short.

    What cannot be done raises ``BadOptionError`` with a line for the user, and changes nothing.
    """

    def load(self, choice: PairChoice) -> AsyncIterator[LoadUpdate]:
        """Load a pair, or switch to it: Notice and LoadProgress, then Loaded or Failed."""
        return self._loading.load(choice, self.sampling, self._energies.start)

    def cancel_load(self) -> None:
        """Give up a load that is under way; the pair before stays."""
        self._loading.cancel()

    @property
    def choice(self) -> PairChoice | None:
        """The pair that was loaded last."""
        return self._loading.choice

    async def tune(self, **changes: Any) -> Tuning:
        """Change method, depth, rule or fields of ``sampling`` from the next round on.

        The sampling is this conversation's; the rest holds for all.
        """
        tuning = await self._dials.tune(changes, self.sampling)
        if "sampling" in changes:
            self._tree.set_sampling({**self.sampling, **changes["sampling"]})
        for what in described(changes):
            self._live.mark(what)
        self._loading.look(busy=self.busy, now=True)
        return tuning

    def panel(self) -> PanelState:
        """The numbers now; for four times a second."""
        self._loading.look(busy=self.busy)
        return self._energies.on(self._dials.on(self._live.state(), self.sampling))

    async def close(self) -> None:
        """Keep everything and let go of the store; the engine is its maker's to close."""
        self.saved_interrupt()
        await self._energies.close()
        self.store.close()
