"""Two processes on one store: nothing is lost, and nothing stays unseen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from macspec.store import Store

ACTIONS = 200

WINDOW = """
import asyncio, random, sys
sys.path[:0] = sys.argv[3:]
from conversing import conversation_with, load, read
from macspec.errors import BadOptionError
from macspec.store import Store
from scripted import ScriptedEngine

async def main(path, name, actions):
    rng, number = random.Random(name), 0
    engine = ScriptedEngine(f"reply of {name}", instant=True)
    it = conversation_with(engine, Store(path, patience=60))
    await load(it)
    for _ in range(actions):
        chats, turns = it.store.chats(), it.turns
        act = rng.choice(["ask", "ask", "ask", "open", "edit", "again", "delete", "undo", "new"])
        try:
            if act == "ask":
                number += 1
                await read(it.ask(f"{name} {number}"))
                print(f"{name} {number}", flush=True)
            elif act == "edit" and turns:
                number += 1
                await read(it.edit(turns[0].id, f"{name} {number}"))
                print(f"{name} {number}", flush=True)
            elif act == "again" and turns:
                await read(it.regenerate())
            elif act == "open" and chats:
                it.open(rng.choice(chats).id)
            elif act == "delete" and it.chat is not None:
                it.delete()
            elif act == "undo":
                it.store.undo()
            elif act == "new":
                it.new()
        except BadOptionError as error:
            print("refused", error, file=sys.stderr)
        it.refresh()
        if it.chat is not None and it.turns:
            for _ in range(50):  # The other one may write between two looks.
                now = it.store.chat(it.chat.id)
                if now.deleted is not None or now.leaf == it.turns[-1].id:
                    break
                it.refresh()
            else:
                raise AssertionError("unseen")
    await it.close()

from pathlib import Path
asyncio.run(main(Path(sys.argv[1]), sys.argv[2].split(":")[0], int(sys.argv[2].split(":")[1])))
"""


@pytest.mark.parametrize("actions", [12, pytest.param(ACTIONS, marks=pytest.mark.slow)])
def test_two_windows_lose_nothing(tmp_path: Path, actions: int) -> None:
    path = tmp_path / "chats.db"
    Store(path).close()
    here = Path(__file__).resolve().parent
    folders = [str(here), str(here.parent / "unit/app")]
    windows = [
        subprocess.Popen(
            [sys.executable, "-c", WINDOW, str(path), f"{name}:{actions}", *folders],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    sent: list[str] = []
    for window in windows:
        out, errors = window.communicate(timeout=200)
        assert window.returncode == 0, errors
        sent += out.splitlines()
    store = Store(path)
    chats = [*store.chats(), *store.deleted_chats()]
    kept = {turn.text for chat in chats for turn in store.messages(chat.id)}
    assert set(sent) <= kept
    assert all(
        turn.text
        for chat in chats
        for turn in store.messages(chat.id)
        if turn.role == "assistant" and turn.state == "complete"
    )
    store.close()
