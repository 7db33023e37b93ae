"""What the engine holds: a pair, and the settings that can change while a reply streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from macspec.config.schema import Config
from macspec.errors import BadOptionError, MacspecError
from macspec.events import Notice
from macspec.worker import (
    Call,
    EngineClient,
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    PairInfo,
    Status,
    Tuned,
    Tuning,
)

from ..panel.live import LiveStats
from ..panel.panelstate import PanelState
from .tree import Tree


class LiveSettings:
    """Method, depth and rule, shared by all conversations, and the sampling of each.

    Args:
        config: the values at the start.
        tree: the conversation, which keeps its own sampling.
        live: where changes are marked.
    """

    def __init__(self, engine: EngineClient, config: Config, tree: Tree, live: LiveStats) -> None:
        self._engine, self._tree, self._live = engine, tree, live
        self._sampling = asdict(config.sampling)
        speculation = config.speculation
        self._shared = Tuning(speculation.method, speculation.depth, speculation.rule)
        self._confirmed: Tuning | None = None
        """What the engine has; None: not known."""
        self._unanswered: Call | None = None
        self._lent = False
        self.requests = 0
        """How often the engine was asked to set something."""

    @property
    def desired(self) -> Tuning:
        """Everything as it is set, for the conversation that is shown."""
        return self._with(self._tree.sampling)

    async def tune(self, **changes: Any) -> None:
        """Change method, depth, rule or some of ``sampling``, from the next round on; MacspecError:
        the engine refuses, and nothing is changed."""
        shared = {name: value for name, value in changes.items() if name != "sampling"}
        own = changes.get("sampling", {})
        if unknown := sorted(set(own) - set(self._sampling)):
            raise BadOptionError(f"there is no sampling setting {unknown[0]}")
        sampling = {**self._tree.sampling, **own}
        desired = replace(self._with(sampling), **shared)
        await self._apply(desired)
        self._shared = replace(desired, sampling={})
        if own:
            self._tree.set_sampling(sampling)
        for name, value in ({**shared, **own}).items():
            self._live.mark(f"{name.replace('_', ' ')} {value}")

    async def set_sampling(self, sampling: Mapping[str, Any]) -> None:
        """Set all that this conversation has of its own, as ``tune``; the rest is as in the
        settings."""
        await self._apply(self._with(sampling))
        self._tree.set_sampling(dict(sampling))

    async def lend(self, tuning: Tuning) -> None:
        """Let the engine work with other settings, until ``sync``; MacspecError: it refuses."""
        self._lent = True
        await self._apply(tuning)

    def sync(self) -> None:
        """Send the engine what is set, before whatever it is asked next."""
        self._lent = False
        desired = self.desired
        if desired != self._confirmed:
            self.requests += 1
            self._unanswered = self._engine.tune(**asdict(desired))
            self._confirmed = desired

    def refusal(self) -> str | None:
        """Why the engine refused the last ``sync``, once; None: it did not."""
        call = self._unanswered
        if call is None or not call.done:
            return None
        self._unanswered = None
        answer = call.result()
        if isinstance(answer, Failed) and answer.kind == "refused":
            return answer.message
        return None

    def reported(self, tuning: Tuning, requests: int) -> None:
        """Take over what the engine had when ``self.requests`` was this; without a draft model the
        method may be another one."""
        if requests == self.requests and not self._lent:
            self._confirmed = tuning
            self._shared = replace(self._shared, method=tuning.method)

    def pair_loaded(self, pair: PairInfo) -> None:
        """A pair was loaded; without a draft model, method draft becomes auto."""
        if pair.draft is None and self._shared.method == "draft":
            self._shared, self._confirmed = replace(self._shared, method="auto"), None

    def shown_in(self, state: PanelState) -> PanelState:
        """The same numbers, with what is set."""
        desired = self.desired
        return replace(
            state,
            method=desired.method,
            depth=desired.depth,
            rule=desired.rule,
            temperature=desired.sampling["temperature"],
        )

    def _with(self, sampling: Mapping[str, Any]) -> Tuning:
        own = {name: value for name, value in sampling.items() if name in self._sampling}
        return replace(self._shared, sampling={**self._sampling, **own})

    async def _apply(self, tuning: Tuning) -> None:
        self.requests += 1
        call = self._engine.tune(**asdict(tuning))
        answer = [event async for event in call][-1]
        if isinstance(answer, Failed):
            kind = BadOptionError if answer.kind == "refused" else MacspecError
            raise kind(answer.message)
        assert isinstance(answer, Tuned)
        self._confirmed = tuning


OFTEN, SELDOM = 1.0, 5.0
"""Seconds between two requests for the engine's status, in a reply and between replies."""


class Loading:
    """The pair that is loaded, and the status of the engine.

    Args:
        clock: monotonic seconds.
        ready: called once a pair is loaded.
    """

    def __init__(
        self,
        engine: EngineClient,
        live: LiveStats,
        settings: LiveSettings,
        clock: Callable[[], float],
        ready: Callable[[], None],
    ) -> None:
        self._engine, self._live, self._settings = engine, live, settings
        self._clock, self._ready = clock, ready
        self.choice: PairChoice | None = None
        """The pair that was loaded last."""
        self.coming: PairChoice | None = None
        """The pair that is being loaded."""
        self._call: Call | None = None
        self._status: Call | None = None
        self._asked_at, self._requests = float("-inf"), 0
        self._lost = True
        """Whether no engine runs, and a request would only start one."""

    async def load(
        self, choice: PairChoice
    ) -> AsyncIterator[Notice | LoadProgress | Loaded | Failed]:
        """Load a pair, or switch to it: Notice and LoadProgress, then Loaded or Failed."""
        self._settings.sync()
        self._live.loading()
        call = self._call = self._engine.load(choice)
        self.coming = choice
        try:
            async for event in call:
                self._live.see(event)
                if isinstance(event, Loaded):
                    self.choice, self._lost = choice, False
                    self._settings.pair_loaded(event.pair)
                    self.poll(busy=False, now=True)
                    self._ready()
                if isinstance(event, Failed):
                    self.lost(event)
                if isinstance(event, Notice | LoadProgress | Loaded | Failed):
                    yield event
        finally:
            self._call = self.coming = None
            if not call.done:
                call.stop()

    @property
    def answering(self) -> PairChoice:
        """The pair that answers a request made now: loads and replies are queued."""
        return self.coming or self.choice or PairChoice()

    def cancel(self) -> None:
        """Cancel the load in progress; the pair before stays."""
        if self._call is not None:
            self._call.stop()

    def lost(self, failed: Failed) -> None:
        """A call failed; an engine that crashed is gone until the next reply."""
        self._lost = self._lost or failed.kind == "crashed"

    def back(self) -> None:
        self._lost = False

    def poll(self, *, busy: bool, now: bool = False) -> None:
        """Take the engine's status if it has arrived, and request it again from time to time."""
        if self._status is not None:
            if not self._status.done:
                return
            answer, self._status = self._status.result(), None
            if isinstance(answer, Status):
                self._live.see(answer)
                self._settings.reported(answer.tuning, self._requests)
            elif isinstance(answer, Failed) and answer.kind != "refused":
                self.lost(answer)
        due = self._asked_at + (OFTEN if busy else SELDOM) <= self._clock()
        if not self._lost and (due or now):
            self._asked_at, self._requests = self._clock(), self._settings.requests
            self._status = self._engine.status()
