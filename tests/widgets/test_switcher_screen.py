"""Choosing a pair: what is here, what fits, what is fetched from a hub of our own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from fakehub import Hub, serving
from huggingface_hub import constants
from screentext import Host, seen, until

from macspec.app.chat import background
from macspec.app.chat.picker import ModelPicker
from macspec.app.screens.box import Rows
from macspec.app.screens.switcher import Switcher
from macspec.config.schema import Config
from macspec.worker import PairChoice

POCKET = Path(str(files("macspec.assets"))) / "pocket"
SIZES = [(120, 36), (80, 24), (60, 20), (40, 12)]
OWN = {
    "name": "little",
    "target": "owner/target",
    "draft": "owner/draft",
    "download": 0.02,
    "memory_8k": 0.05,
}


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    served = Hub()
    for role in ("target", "draft"):
        served.add(f"owner/{role}", POCKET / role)
    cache = tmp_path / "cache"
    with serving(served, cache, monkeypatch):
        monkeypatch.setenv("HF_ENDPOINT", constants.ENDPOINT)
        monkeypatch.setenv("HF_HUB_CACHE", str(cache))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        yield served


@pytest.fixture
def offline(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def scripted(offline, monkeypatch):
    """Stands in for the scan or the download with what they would write; the scan finds nothing."""

    def script(name: str, *records: dict, error: str = "", gate: Path | None = None) -> None:
        first, *rest = [json.dumps(record) for record in records] or [""]
        code = (
            "import os, sys, time\n"
            f"print({first!r}, flush=True)\n"
            f"while not os.path.exists({str(gate or '/')!r}):\n"
            "    time.sleep(0.01)\n"
            f"print({chr(10).join(rest)!r})\n"
            f"sys.exit({error!r} or 0)\n"
        )
        monkeypatch.setattr(background, name, (sys.executable, "-S", "-c", code))

    script("SCAN", {"event": "listed"})
    return script


def pairs(*folders: Path, current: PairChoice | None = None, **settings) -> ModelPicker:
    return ModelPicker(Config(**settings), current or PairChoice(), [str(it) for it in folders])


def names(app: Host) -> list[str]:
    it = app.screen.query_one(Rows)
    return [str(option.prompt).splitlines()[0].strip(" ▸") for option in it.options]


@pytest.mark.parametrize("size", SIZES)
async def test_shows_the_built_in_pair_and_the_catalogue(scripted, size):
    app = Host()
    async with app.run_test(size=size) as pilot:
        await app.ask(Switcher(pairs()))
        await until(pilot, lambda: "GB for models" in seen(app))
        text = seen(app)
        assert "▸ built-in" in text
        assert "in use" in text
        assert "Enter choose" in text
        assert {"qwen3-4b", "llama-3.3-70b"} <= set(names(app))


async def test_the_chosen_row_is_of_one_colour(scripted):
    app = Host()
    async with app.run_test(size=(120, 36)) as pilot:
        await app.ask(Switcher(pairs()))
        await until(pilot, lambda: "GB for models" in seen(app))
        it = app.screen.query_one(Rows)
        colours = [
            {str(segment.style.color) for segment in it.render_line(y) if segment.text.strip()}
            for y in range(4)
        ]
        assert len(colours[0] | colours[1]) == 1
        assert len(colours[2] | colours[3]) == 2


async def test_what_is_here_is_opened_and_compared(offline, tmp_path):
    broken = Path(shutil.copytree(POCKET / "draft", tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"")
    app = Host()
    async with app.run_test(size=(120, 36)) as pilot:
        choices = pairs(POCKET / "target", POCKET / "draft", broken)
        await app.ask(Switcher(choices))
        await until(pilot, lambda: choices.scan.complete)
        await pilot.press(*"pocket")
        await until(pilot, lambda: len(names(app)) == 2)
        await until(pilot, lambda: "needs 37 MB at context 2048 · fits" in seen(app))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: "a draft for target" in seen(app))
        assert names(app)[0].startswith("draft (")
        assert names(app)[1] == "no draft model"
        assert names(app)[2].startswith("broken (")
        assert "is truncated" in seen(app)
        await pilot.press("down", "down", "enter")
        assert not app.results
        await pilot.press("up", "up", "enter")
        await until(pilot, lambda: app.results)
        (choice,) = app.results
        assert choice == PairChoice(str(POCKET / "target"), str(POCKET / "draft"))


async def test_a_draft_that_cannot_draft_says_why(offline):
    app = Host()
    async with app.run_test(size=(120, 36)) as pilot:
        choices = pairs(POCKET / "target", POCKET / "draft")
        await app.ask(Switcher(choices))
        await until(pilot, lambda: choices.scan.complete)
        await pilot.press(*"pocket")
        await until(pilot, lambda: len(names(app)) == 2)
        await pilot.press("enter")
        await until(pilot, lambda: "a draft for draft" in seen(app))
        await until(pilot, lambda: "larger than the target" in seen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "choose a target" in seen(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.results)
        assert app.results == [None]


async def test_the_built_in_pair_is_chosen_at_once(scripted):
    app = Host()
    async with app.run_test() as pilot:
        now = PairChoice("owner/target", "owner/draft", learn=False)
        await app.ask(Switcher(pairs(current=now)))
        await pilot.press(*"built", "enter")
        await until(pilot, lambda: app.results)
        assert app.results == [PairChoice(learn=False)]


async def test_the_limit_of_the_settings_is_asked_for(scripted):
    from macspec.config.schema import Models

    app = Host()
    async with app.run_test() as pilot:
        await app.ask(Switcher(pairs(models=Models(context=512, kv_bits=8))))
        await pilot.press("enter")
        await until(pilot, lambda: app.results)
        assert app.results == [PairChoice(context=512, kv_bits=8)]


async def test_what_went_wrong_is_said_as_long_as_its_row_is_chosen(scripted):
    draft = str(POCKET / "draft")
    found = {"name": draft, "folder": draft, "size": 1, "missing": None, "stamp": "1"}
    scripted("SCAN", {"event": "found", **found}, {"event": "listed"})
    scripted("PULL", error="macspec: error: no such model on the Hugging Face hub")
    choices = pairs(POCKET / "draft")
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(Switcher(choices))
        await until(pilot, lambda: choices.scan.complete)
        await pilot.press(*"owner/nothing", "enter", "enter", "y")
        wrong = "no such model on the Hugging Face"
        await until(pilot, lambda: wrong in seen(app))
        assert "error:" not in seen(app)
        assert not app.results
        app.screen._show()
        await pilot.pause(0.5)
        assert wrong in seen(app)
        await pilot.press("down")
        await until(pilot, lambda: wrong not in seen(app))
        await pilot.press("up")
        await until(pilot, lambda: wrong in seen(app))
        await pilot.press("escape")
        await until(pilot, lambda: wrong not in seen(app))


async def test_a_download_goes_on_without_the_screen_and_tells_its_end(scripted, tmp_path):
    gate = tmp_path / "gate"
    listed = {"event": "listed", "models": [], "total": 30, "present": 0, "free": 10**12}
    parts = {"owner/target": 20, "owner/draft": 10}
    pulled = [{"event": "pulled", "model": name, "total": it} for name, it in parts.items()]
    scripted("PULL", listed, *pulled, gate=gate)
    choices = pairs(pairs=(OWN,))
    ended = []
    choices.ended = ended.append
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(Switcher(choices))
        await pilot.press(*"little", "enter", "enter", "y")
        await until(pilot, lambda: "Esc close, keep downloading" in seen(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.results)
        assert app.results == [None]
        assert not ended
        gate.touch()
        await until(pilot, lambda: ended)
        assert ended[0].state == "done"
        assert ended[0].done == ended[0].total == 30


async def test_a_pair_is_fetched_cancelled_with_its_parts_kept_and_chosen(hub, tmp_path):
    hub.breaks = [3 * 2**20] * 50
    choices = pairs(pairs=(OWN,))
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(Switcher(choices))
        await pilot.press(*"little", "enter")
        await until(pilot, lambda: names(app) == ["owner/draft", "no draft model"])
        await pilot.press("enter")
        await until(pilot, lambda: "Download owner/target and owner/draft" in seen(app))
        await pilot.press("n")
        await until(pilot, lambda: "y download" not in seen(app))
        assert not hub.asked
        await pilot.press("enter", "y")
        await until(pilot, lambda: "connection lost" in seen(app))
        await pilot.press("c")
        await until(pilot, lambda: "kept for next time" in seen(app))
        assert not app.results
        parts = list((tmp_path / "cache").rglob("*.incomplete"))
        kept = sum(part.stat().st_size for part in parts)
        assert kept > 0
        hub.breaks, hub.sent = [], 0
        await pilot.press("enter", "y")
        await until(pilot, lambda: app.results)
        assert app.results == [PairChoice("owner/target", "owner/draft")]
        weights = sum(
            len(data)
            for model in hub.models.values()
            for name, data in model.items()
            if name.endswith(".safetensors")
        )
        assert hub.sent == weights - kept
        await app.ask(Switcher(pairs(pairs=(OWN,))))
        await until(pilot, lambda: "downloaded" in seen(app) and "owner/target" in names(app))


async def test_hostile_names_are_only_text(offline, tmp_path):
    from hostile import harms

    folder = tmp_path / "a\x1b[31mred\u202e\x9b[markup] 'q"
    shutil.copytree(POCKET / "draft", folder)
    own = {**OWN, "name": "x\x1b]52;c;aGVsbG8=\x07", "target": "o/\x1b[2Jn", "source": "\x1bc"}
    app = Host()
    async with app.run_test(size=(60, 40)) as pilot:
        choices = pairs(folder, pairs=(own,))
        await app.ask(Switcher(choices))
        await until(pilot, lambda: choices.scan.complete)
        await until(pilot, lambda: "␛[31mred" in seen(app) and "␛]52" in seen(app))
        assert not harms(seen(app))
        await pilot.press(*"o/", "enter")
        await until(pilot, lambda: "a draft for" in seen(app))
        assert not harms(seen(app))


def test_home_is_found(offline):
    assert pairs(Path("~")).folders == (os.path.expanduser("~"),)
