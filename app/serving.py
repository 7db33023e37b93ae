"""``macspec serve --panel``: what the server does, live, with the panel and sliders of the app."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field, replace
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from macspec.events import Finished, Prefilled, Prefilling, Round
from macspec.power import Meter, ReplyWatch
from macspec.serve.app import Server, Settings
from macspec.worker import Call, EngineClient, Failed, Loaded, Status, Tuned, Tuning
from macspec.worker.messages import Answer

from .chat.energy import EnergyMeter
from .panel.live import LiveStats
from .panel.panel import Panel
from .panel.sliders import Sliders, Tune
from .themes import OWN

PERIOD = 0.25
"""Seconds between two updates of the screen."""

STATUS = 2.0
"""Seconds between two looks at the engine's memory."""


@dataclass(slots=True)
class Traffic:
    """Adds up what the server does, and follows one reply after the other.

    The panel's numbers are those of the reply that is followed; when it is over, of the next one
    that has a round. Joules are a reply's as long as no other takes turns with it.
    """

    live: LiveStats
    energy: EnergyMeter = field(default_factory=lambda: EnergyMeter(None))
    waiting: set[Call] = field(default_factory=set)
    replying: set[Call] = field(default_factory=set)
    answered: int = 0
    tokens: int = 0
    followed: Call | None = None
    watch: ReplyWatch | None = None

    def see(self, call: Call, event: Answer | None) -> None:
        """Take an event of a call; None: its client has its answer, or left."""
        if event is None:
            self._over(call)
            return
        if isinstance(event, Prefilling | Prefilled | Round):
            self.waiting.discard(call)
            self.replying.add(call)
            if self.followed is None:
                self.followed = call
                self.live.asked()
                self.watch = self.energy.watch() if len(self.replying) == 1 else None
            elif len(self.replying) > 1:
                self.energy.drop()
                self.watch = None
        elif call not in self.replying:
            self.waiting.add(call)
        if isinstance(event, Round):
            self.tokens += len(event.tokens)
        if self.followed is call:
            self.live.see(event)
            if self.watch is not None and isinstance(event, Prefilled | Round | Finished):
                self.watch.see(event)
        if isinstance(event, Finished):
            self.answered += 1
            self._over(call)

    def _over(self, call: Call) -> None:
        self.waiting.discard(call)
        self.replying.discard(call)
        if self.followed is call:
            self.followed = None
            self.live.resting()
            if self.watch is not None:
                self.watch.end()
                self.energy.settle(self.watch, lambda energy: None)
                self.watch = None

    def __str__(self) -> str:
        return (
            f"{len(self.replying)} replying, {len(self.waiting)} waiting, "
            f"{self.answered} answered, {self.tokens} tokens"
        )


class ServingApp(App[None]):
    """Runs the server and shows it until the user leaves."""

    CSS: ClassVar[str] = """
    Vertical { padding: 0 1; }
    .line { height: 1; padding: 0 1; color: $text-muted; }
    #address { color: $text; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, "leave", show=False, priority=True) for key in ("ctrl+c", "ctrl+q", "q")
    ]

    def __init__(
        self,
        engine: EngineClient,
        loaded: Loaded,
        settings: Settings,
        listening: socket.socket,
        address: str,
        meter: Meter | None = None,
    ) -> None:
        super().__init__()
        for own in OWN:
            self.register_theme(own)
        self.theme = OWN[0].name
        self.traffic = Traffic(LiveStats(), EnergyMeter(meter))
        self.traffic.live.see(loaded)
        self._engine, self._address, self._listening = engine, address, listening
        self._tuning = Tuning()
        self.server = Server(engine, replace(settings, watch=self.traffic.see))

    def served(self) -> int:
        """Serve until the user leaves; returns the exit status."""
        self.run()
        return self.server.status

    def compose(self) -> ComposeResult:
        yield Static(f"{self._address}  (q ends it)", id="address", classes="line", markup=False)
        yield Static(id="traffic", classes="line", markup=False)
        with Vertical():
            yield Panel()
            yield Sliders(hint="for requests that do not say")

    def on_ready(self) -> None:
        self.traffic.energy.start()
        self.run_worker(self._serve())
        self.run_worker(self._look())
        self.set_interval(PERIOD, self.refresh_numbers)
        self.refresh_numbers()

    async def _serve(self) -> None:
        await self.server.serve([self._listening])
        await self.traffic.energy.close()
        self.exit()

    async def _look(self) -> None:
        """Ask the engine how it is, now and then."""
        while True:
            async for event in self._engine.status():
                if isinstance(event, Status):
                    self.traffic.live.see(event)
                    self._tuning = event.tuning
            await asyncio.sleep(STATUS)

    def refresh_numbers(self) -> None:
        state = self.traffic.energy.shown_in(self.traffic.live.state())
        tuning = self._tuning
        state = replace(
            state,
            method=tuning.method,
            depth=tuning.depth,
            rule=tuning.rule,
            temperature=tuning.sampling.get("temperature", state.temperature),
        )
        self.query_one("#traffic", Static).update(str(self.traffic))
        self.query_one(Panel).show(state)
        self.query_one(Sliders).show(state)

    @on(Tune)
    async def tune(self, event: Tune) -> None:
        """Change what applies to requests that do not say."""
        async for answer in self._engine.tune(**event.changes):
            if isinstance(answer, Tuned):
                self._tuning = answer.tuning
            elif isinstance(answer, Failed):
                self.query_one(Sliders).refused(event.slider, event.value, answer.message)
        self.refresh_numbers()

    def action_leave(self) -> None:
        self.server.should_exit = True
