"""The real program, with the pair that is built in, in a terminal."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from onscreen import CAPITAL, ask, passes, quit_by_ctrl_c, wait_for_answer
from terminal import Terminal, descendants, macspec

from macspec.assets import pocket
from macspec.store import OPEN, Store

ENDLESS = ("--accept", "keyed", "--seed", "1")
"""With a temperature that makes every token as likely as any other, this noise does not end a
reply before the context is full, however it is drafted."""


def test_a_day_with_it(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Terminal(macspec(*ENDLESS), environ, size=(120, 36)) as terminal:
        terminal.wait_for("Ask anything")
        terminal.wait_for("Welcome to macspec")
        ask(terminal, CAPITAL)
        terminal.wait_for("Paris.")
        wait_for_answer(terminal, CAPITAL)
        terminal.wait_for(lambda: passes(terminal) > 0, what="numbers in the panel")

        ask(terminal, "/temperature 100")
        terminal.wait_for("temperature 100 from the next round")
        ask(terminal, "Tell me a story.")
        terminal.wait_for(lambda: "▶ writing" in terminal.text and passes(terminal) > 3)
        terminal.press("ctrl+s")
        terminal.wait_for("method eagle")
        ask(terminal, "/depth 4")
        terminal.wait_for("depth 4 from the next round")
        before = passes(terminal)
        terminal.wait_for(lambda: passes(terminal) > before and "eagle depth  4" in terminal.text)
        assert "▶ writing" in terminal.text
        terminal.press("escape")
        terminal.wait_for("■ Stopped")
        words = [line[:78] for line in terminal.lines if line.startswith("  ")]
        assert len(words) > 2

        ask(terminal, "/temperature 0")
        terminal.wait_for("temperature 0 from the next round")
        terminal.press("ctrl+r")
        terminal.wait_for("‹ 2/2 ›")
        terminal.wait_for(lambda: "■ Stopped" not in terminal.text)
        wait_for_answer(terminal, "Tell me a story.")

        frame = terminal.look("╭").fg
        terminal.press("tab")
        terminal.wait_for(lambda: terminal.look("╭").fg != frame, what="the prompt is left")
        terminal.press("e")
        terminal.wait_for("editing message 2")
        terminal.press("ctrl+u")
        ask(terminal, "What is 2 plus 3?")
        terminal.wait_for("You · ‹ 2/2 ›")
        wait_for_answer(terminal, "What is 2 plus 3?")
        assert "Tell me a story" not in terminal.text

        draft = pocket().draft
        ask(terminal, f"/models {draft} none")
        terminal.wait_for("now using ")
        ask(terminal, "/temperature 100")
        terminal.wait_for("temperature 100 from the next round")
        ask(terminal, "And then?")
        terminal.wait_for(lambda: "▶ writing" in terminal.text and passes(terminal) > 3)
        (engine,) = (
            pid for pid, line in descendants(terminal.process.pid).items() if "worker" in line
        )
        os.kill(engine, signal.SIGKILL)
        terminal.wait_for("the engine stopped")
        terminal.wait_for("✗ Interrupted")
        ask(terminal, "/temperature 0")
        terminal.wait_for("temperature 0 from the next round")
        ask(terminal, "hello")
        terminal.wait_for("engine restarted")
        wait_for_answer(terminal, "hello")

        terminal.press("ctrl+n")
        terminal.wait_for("New conversation")
        ask(terminal, "Tell me a joke.")
        wait_for_answer(terminal, "Tell me a joke.")
        terminal.type("not sent yet")
        terminal.wait_for("❯ not sent yet")
        terminal.signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        terminal.assert_restored()

    environ = {**environ, "VISUAL": "sed -i.before s/yet/ever/"}
    # What follows a text at that temperature may be long, and push the question out of view.
    short = macspec("--max-tokens", "60")
    with Terminal(short, environ, size=(80, 24), term="xterm") as terminal:
        terminal.wait_for("❯ not sent yet")
        terminal.press("ctrl+x")
        terminal.wait_for("❯ not sent ever")
        assert terminal.full_screen
        terminal.wait_for("▎ Tell me a joke.")
        assert not any(re.fullmatch("[0-9a-f]{6}", colour) for colour in terminal.colours())
        terminal.press("ctrl+f")
        terminal.wait_for("─ Conversations ─")
        terminal.type("France")
        terminal.wait_for(lambda: CAPITAL in terminal.text and "joke" not in terminal.text)
        terminal.press("enter")
        terminal.wait_for(lambda: terminal.lines[0].startswith(f" {CAPITAL}"))
        ask(terminal, "Good bye!")
        wait_for_answer(terminal, "Good bye!")
        terminal.type("more words")
        terminal.wait_for("❯ more words")
        terminal.signal(signal.SIGHUP)
        assert terminal.ended() == 128 + signal.SIGHUP
        terminal.assert_restored()
    store = Store(tmp_path / "data" / "chats" / "chats.db")
    last = store.last_chat()
    assert last is not None
    assert (last.title, last.unsent) == (CAPITAL, "more words")
    store.close()


def test_a_small_window_without_colours(environ: Mapping[str, str]) -> None:
    command = macspec("--temperature", "0")
    with Terminal(command, {**environ, "NO_COLOR": "1"}, size=(60, 20), term="xterm") as terminal:
        terminal.wait_for("Ask anything")
        ask(terminal, CAPITAL)
        terminal.wait_for("Paris.")
        wait_for_answer(terminal, CAPITAL)
        assert terminal.colours() == {"default"}
        terminal.paste("one\x1b[2J\rtwo\x1b[201")
        terminal.wait_for("❯ one␛[2J")
        terminal.wait_for("  two␛[201")
        terminal.press("ctrl+u", "backspace", "ctrl+u")
        terminal.wait_for("Ask anything")
        terminal.resize(40, 12)
        terminal.wait_for(lambda: len(terminal.lines) == 12 and "Ask anything" in terminal.text)
        ask(terminal, "Who are you?")
        terminal.wait_for(lambda: "▶ writing" not in terminal.text and "macspec" in terminal.text)
        terminal.resize(39, 12)
        terminal.wait_for("macspec needs 40x12; this is 39x12")
        terminal.resize(60, 20)
        terminal.wait_for("Ask anything")
        terminal.press("ctrl+c")
        terminal.wait_for(lambda: b"Ctrl+C again to quit" in terminal.output)
        assert quit_by_ctrl_c(terminal) == 0
        terminal.assert_restored()


@pytest.mark.slow
def test_a_terminal_that_stands_still_holds_up_nothing(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    store = Store(tmp_path / "data" / "chats" / "chats.db")
    command = macspec(*ENDLESS, "--temperature", "100", "--max-tokens", "160")
    with Terminal(command, environ) as terminal:
        terminal.wait_for("Ask anything")
        ask(terminal, "Tell me a story.")
        terminal.wait_for("▶ writing")
        terminal.freeze()
        terminal.wait_for(lambda: store.thread(1)[-1].state != OPEN, what="the reply's end")
        assert "▶ writing" in terminal.text
        terminal.thaw()
        terminal.wait_for("■ Stopped: length limit")
        terminal.wait_for("● ready")

        ask(terminal, "And then?")
        terminal.wait_for("▶ writing")
        terminal.freeze()
        terminal.type("not sent")
        terminal.wait_for(lambda: store.chat(1).unsent == "not sent", what="what is typed, kept")
        terminal.press("ctrl+c", "ctrl+c")
        assert terminal.ended() == 0
        assert store.thread(1)[-1].state != OPEN
    store.close()


@pytest.mark.parametrize(
    ("term", "pipe", "reason"),
    [
        ("dumb", "", "TERM is dumb"),
        ("xterm-256color", " | cat", "standard output is not a terminal"),
    ],
)
def test_a_terminal_that_shows_no_screen(
    environ: Mapping[str, str], term: str, pipe: str, reason: str
) -> None:
    command = ["sh", "-c", f"{shlex.join(macspec())}{pipe}"]
    with Terminal(command, environ, term=term) as terminal:
        terminal.wait_for(f"{reason}: using line mode")
        assert not terminal.modes
        terminal.type("/quit\r")
        assert terminal.ended() == 0
        assert (b"\x1b" if term == "dumb" else b"\x1b[?1049h") not in terminal.output
        terminal.assert_restored()
