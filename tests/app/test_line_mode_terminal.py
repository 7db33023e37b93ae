"""Line mode on a terminal: typing, Ctrl+C, the end of input, signals."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from onscreen import quit_by_ctrl_c
from terminal import Terminal, macspec

from macspec.store import STOPPED, Store, store_path

# Keyed and with a seed it is one text, and a long one: another draw might end at once.
LONG = ("--temperature", "3", "--accept", "keyed", "--seed", "1", "--max-tokens", "1900")
PLAIN = ("chat", "--plain", *LONG)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "home"))


@pytest.fixture
def store():
    opened = Store(store_path())
    yield opened
    opened.close()


def plain(*arguments: str, **settings) -> Terminal:
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return Terminal(macspec(*(arguments or PLAIN)), environ, **settings)


def ready(terminal: Terminal, typed: str = "") -> None:
    """Wait until it asks for a message, and this stands there."""
    last = f"> {typed}".strip()
    terminal.wait_for(
        lambda: [line for line in terminal.lines if line][-1:] == [last], what=f"the line {last}"
    )


def test_a_conversation(store):
    with plain() as terminal:
        terminal.wait_for("Ctrl+D quits")
        ready(terminal)
        terminal.type("/dep\t")
        ready(terminal, "/depth")
        terminal.type("3\r")
        terminal.wait_for("depth 3 from the next round")
        ready(terminal)
        terminal.type("Tell me something\r")
        chats = []
        terminal.wait_for(lambda: chats or chats.extend(store.chats()))
        terminal.wait_for(lambda: len(store.thread(1)) == 2 and store.thread(1)[1].text)
        terminal.press("ctrl+c")
        terminal.wait_for("stopped; what was generated is kept")
        assert store.thread(1)[1].state == STOPPED
        before = store.thread(1)[1].text
        assert before
        terminal.type("/continue\r")
        terminal.wait_for(lambda: len(store.thread(1)[1].text) > len(before))
        terminal.press("ctrl+c")
        terminal.wait_for(lambda: store.thread(1)[1].state == STOPPED)
        assert store.thread(1)[1].text.startswith(before)
        terminal.type("/stats\r")
        terminal.wait_for("self-check")
        ready(terminal)
        terminal.press("up", "up")
        ready(terminal, "/continue")
        terminal.press("ctrl+u", "ctrl+d")
        assert terminal.ended() == 0
        terminal.assert_restored()
        assert b"\x1b[?1049" not in terminal.output


def test_ctrl_c_twice_leaves_and_a_pasted_text_is_one_message(store):
    with plain("chat", "--plain", "--max-tokens", "3") as terminal:
        ready(terminal)
        terminal.type("first line\nsecond line\nthird line\n")
        terminal.wait_for(lambda: store.chats())
        terminal.wait_for("reached --max-tokens")
        assert store.thread(1)[0].text == "first line\nsecond line\nthird line"
        ready(terminal)
        again = "Ctrl+C again to quit"
        terminal.press("ctrl+c")
        # Python loses one that comes between readline's prompt and its waiting for keys.
        with suppress(AssertionError):
            terminal.wait_for(again, 10)
        if again not in terminal.text:
            terminal.press("ctrl+c")
            terminal.wait_for(again)
        assert quit_by_ctrl_c(terminal) == 0


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_what_is_being_typed_is_kept_and_offered_again(store, number):
    with plain() as terminal:
        ready(terminal)
        terminal.type("half a thou")
        ready(terminal, "half a thou")
        terminal.signal(number)
        assert terminal.ended() == 128 + number
        terminal.assert_restored()
    (chat,) = store.chats()
    assert chat.unsent == "half a thou"
    with plain() as terminal:
        ready(terminal, "half a thou")
        terminal.press("ctrl+u", "ctrl+d")
        assert terminal.ended() == 0
    assert not store.chats()


def test_a_message_is_changed_and_sent_again(store):
    with plain("chat", "--plain", "--temperature", "0", "--max-tokens", "8") as terminal:
        ready(terminal)
        terminal.type("What is 3 plus 4?\r")
        terminal.wait_for("3 plus 4 is 7")
        ready(terminal)
        terminal.type("/edit\r")
        ready(terminal, "What is 3 plus 4?")
        terminal.press("backspace", "backspace")
        terminal.type("2?\r")
        terminal.wait_for("3 plus 2 is 5")
        ready(terminal)
        terminal.type("/older\r")
        terminal.wait_for("You, version 1 of 2:")
        ready(terminal)
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
