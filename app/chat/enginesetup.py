"""What the engine holds: a pair, and the settings that can change while a reply streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from macspec.choices import methods_with
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
    Status,
    Tuned,
    Tuning,
)

from ..panel.live import LiveStats
from ..panel.panelstate import PanelState
from .tree import Tree

OFTEN, SELDOM = 1.0, 5.0
"""Seconds between two requests for the engine's status, in a reply and between replies."""


class EngineSetup:
    """A pair, its status, and what it decodes with: method, depth and rule, shared by all
    conversations, and the sampling of each.

    Args:
        config: the values at the start.
        tree: the conversation, which keeps its own sampling.
        live: where changes are marked.
        clock: monotonic seconds.
        ready: called once a pair is loaded.
    """

    def __init__(
        self,
        engine: EngineClient,
        config: Config,
        tree: Tree,
        live: LiveStats,
        clock: Callable[[], float],
        ready: Callable[[], None],
    ) -> None:
        self._engine, self._tree, self._live = engine, tree, live
        self._clock, self._ready = clock, ready
        self._sampling = asdict(config.sampling)
        speculation = config.speculation
        self._shared = Tuning(
            speculation.method,
            speculation.depth,
            speculation.rule,
            objective=config.control.objective,
        )
        self._confirmed: Tuning | None = None
        """What the engine has; None: not known."""
        self._unanswered: Call | None = None
        self._lent = False
        self._outdated = False
        """Whether something was set after the status was asked for."""
        self.choice: PairChoice | None = None
        """The pair that was loaded last."""
        self._coming: PairChoice | None = None
        """The pair that is being loaded."""
        self._load: Call | None = None
        self._status: Call | None = None
        self._asked_at = float("-inf")
        self._lost = True
        """Whether no engine runs, and a request would only start one."""

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
            self._unanswered, self._confirmed = self._send(desired), desired

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

    async def load(
        self, choice: PairChoice
    ) -> AsyncIterator[Notice | LoadProgress | Loaded | Failed]:
        """Load a pair, or switch to it: Notice and LoadProgress, then Loaded or Failed."""
        self.sync()
        self._live.loading()
        call = self._load = self._engine.load(choice)
        self._coming = choice
        try:
            async for event in call:
                self._live.see(event)
                if isinstance(event, Loaded):
                    self.choice, self._lost = choice, False
                    method, pair = self._shared.method, event.pair
                    if method not in methods_with(pair.draft, pair.head):
                        self._shared = replace(self._shared, method="auto")
                        self._confirmed = None
                    self.poll(busy=False, now=True)
                    self._ready()
                if isinstance(event, Failed):
                    self.lost(event)
                if isinstance(event, Notice | LoadProgress | Loaded | Failed):
                    yield event
        finally:
            self._load = self._coming = None
            if not call.done:
                call.stop()

    @property
    def answering(self) -> PairChoice:
        """The pair that answers a request made now: loads and replies are queued."""
        return self._coming or self.choice or PairChoice()

    @property
    def ready(self) -> bool:
        """Whether a pair is loaded and nothing else is being loaded."""
        return self.choice is not None and self._load is None and not self._lost

    def cancel(self) -> None:
        """Cancel the load in progress; the pair before stays."""
        if self._load is not None:
            self._load.stop()

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
                if not self._outdated and not self._lent:
                    # Without a draft model the method may be another one.
                    self._confirmed = answer.tuning
                    self._shared = replace(self._shared, method=answer.tuning.method)
            elif isinstance(answer, Failed) and answer.kind != "refused":
                self.lost(answer)
        due = self._asked_at + (OFTEN if busy else SELDOM) <= self._clock()
        if not self._lost and (due or now):
            self._asked_at, self._outdated = self._clock(), False
            self._status = self._engine.status()

    def _with(self, sampling: Mapping[str, Any]) -> Tuning:
        own = {name: value for name, value in sampling.items() if name in self._sampling}
        return replace(self._shared, sampling={**self._sampling, **own})

    async def _apply(self, tuning: Tuning) -> None:
        answer = [event async for event in self._send(tuning)][-1]
        if isinstance(answer, Failed):
            kind = BadOptionError if answer.kind == "refused" else MacspecError
            raise kind(answer.message)
        assert isinstance(answer, Tuned)
        self._confirmed = tuning

    def _send(self, tuning: Tuning) -> Call:
        self._outdated = True
        return self._engine.tune(**asdict(tuning))
