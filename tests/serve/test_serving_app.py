"""``macspec serve --panel``: the app that runs the server and shows it."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from serving import HELLO, MODEL, ScriptedClient, Settings, ask, chat, eventually, said
from textual.widgets import Static

from macspec.app.chat.energy import EnergyMeter
from macspec.app.panel.live import LiveStats
from macspec.app.panel.panel import Panel
from macspec.app.panel.sliders import Sliders, Tune
from macspec.app.serving import ServingApp, Traffic
from macspec.events import Finished, Prefilled, Round
from macspec.worker import Call, Loaded, PairInfo, Queued

LOADED = Loaded(PairInfo(MODEL, None, None, 4096, 1, 6))


async def test_the_panel_shows_what_the_server_does_and_q_ends_both() -> None:
    engine = ScriptedClient()
    listening = socket.create_server(("127.0.0.1", 0))
    at: Any = SimpleNamespace(port=listening.getsockname()[1])
    app = ServingApp(engine, LOADED, Settings(MODEL), listening, "http://here/v1")
    async with app.run_test(size=(60, 40)) as pilot:
        status, _ = await asyncio.to_thread(ask, at, chat("\x1b[2J"), user_agent="\x1b]0;x\x07")
        assert status == 200
        app.refresh_numbers()
        shown = str(app.query_one("#traffic", Static).render())
        assert shown == "0 replying, 0 waiting, 1 answered, 2 tokens"
        state = app.query_one(Panel).state
        assert (state.target, state.tokens, state.activity) == (MODEL, 3, "ready")
        strips = app.screen._compositor.render_strips()
        assert all(strip.text.isprintable() for strip in strips)
        app.post_message(Tune("depth", 4))
        app.post_message(Tune("depth", 99))
        await pilot.pause()
        assert engine.tuned == {"depth": 4}
        sliders = app.query_one(Sliders).state
        assert (sliders.known["depth"], sliders.reason) == (4, "depth is 99")
        await pilot.press("q")
        assert await asyncio.to_thread(eventually, lambda: not app.is_running)
    listening.close()


def test_one_reply_after_the_other_is_followed() -> None:
    traffic = Traffic(LiveStats())
    first, second, third = (Call(Queued) for _ in range(3))
    for call in (first, second):
        for event in HELLO[:4]:
            traffic.see(call, event)
    traffic.see(third, HELLO[0])
    assert str(traffic) == "2 replying, 1 waiting, 0 answered, 2 tokens"
    assert traffic.live.state().tokens == 1
    for event in (*HELLO[4:], None):
        traffic.see(first, event)
    for call in (second, third):
        traffic.see(call, said("more"))
    assert str(traffic) == "1 replying, 1 waiting, 1 answered, 3 tokens"
    traffic.see(third, Prefilled(7, 0, 0.1))
    assert traffic.followed is third
    for call in (second, third):
        traffic.see(call, None)
    assert str(traffic) == "0 replying, 0 waiting, 1 answered, 3 tokens"
    assert traffic.live.state().activity != "writing"


class ScriptedEnergy(EnergyMeter):
    """Remembers what it is asked."""

    def __init__(self) -> None:
        super().__init__(None)
        self.seen: list[type] = []
        self.done: list[str] = []

    def watch(self) -> Any:
        return SimpleNamespace(see=lambda event: self.seen.append(type(event)), end=lambda: None)

    def drop(self) -> None:
        self.done.append("dropped")

    def settle(self, watch: Any, known: Any) -> None:
        self.done.append("settled")


def test_joules_are_those_of_a_reply_that_nothing_shares_the_machine_with() -> None:
    energy = ScriptedEnergy()
    traffic = Traffic(LiveStats(), energy)
    first, second = Call(Queued), Call(Queued)
    for event in (*HELLO, None):
        traffic.see(first, event)
    assert energy.seen == [Prefilled, Round, Round, Finished]
    assert energy.done == ["settled"]
    for call in (first, second, first):
        traffic.see(call, HELLO[1])
    for call in (first, second):
        traffic.see(call, None)
    assert energy.seen[4:] == [Prefilled]
    assert energy.done[1] == "dropped"
    assert "settled" not in energy.done[1:]
