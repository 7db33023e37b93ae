"""A walk through the real program, step by step, in windows of several sizes.

Each step does something that used to go wrong or to annoy, and waits for what should happen.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from onscreen import CAPITAL, ask, ask_and_wait, leave_prompt
from terminal import Terminal, macspec

from macspec.assets import pocket
from macspec.store import OPEN, Store

STEPS = 40

GREEDY = ("--temperature", "0", "--rule", "keyed", "--seed", "1")
"""And with another temperature one and the same text, which is long."""

RATIO = re.compile(r"(─|tok/s) +\d\.\d+×")
"""How many times as fast as plain a reply was; not what a round is expected to gain."""

STORY = "Tell me a story."

SHELL = ["bash", "--norc", "--noprofile", "-i"]

SIZES = [(120, 36), (80, 24), (60, 20)]


class Walk:
    """What there is on the way.

    Args:
        home: of the user; also the current folder.
    """

    def __init__(self, size: tuple[int, int], environ: Mapping[str, str], home: Path) -> None:
        self.size, self.environ, self.home = size, {**environ, "PS1": "$ "}, home
        self.store = Store(home / "data" / "chats" / "chats.db")
        self.steps: list[str] = []

    def step(self, what: str) -> None:
        self.steps.append(what)

    @contextmanager
    def on_screen(self, command: list[str]) -> Iterator[Terminal]:
        with Terminal(command, self.environ, size=self.size, folder=self.home) as terminal:
            self.terminal = terminal
            yield terminal

    def said(self, *arguments: str) -> str:
        """What a command prints, on both streams."""
        done = subprocess.run(
            macspec(*arguments),
            env=self.environ,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def texts(self, chat: int = 3) -> list[str]:
        """The messages of a conversation, as they are shown; 1 and 2 are of ``macspec run``."""
        return [message.text for message in self.store.thread(chat)]

    def told(self, *words: str) -> None:
        """Wait for words outside of the prompt, which may be on several lines."""
        pattern = re.compile(r"[\s│▎]+".join(re.escape(it) for it in " ".join(words).split()))
        self.terminal.wait_for(
            lambda: pattern.search("\n".join(it for it in self.terminal.lines if "❯" not in it)),
            what=" ".join(words),
        )

    def command(self, line: str, *words: str) -> None:
        """Type a command, and wait for what it says."""
        self.terminal.press("ctrl+u")
        self.terminal.type(line)
        self.terminal.wait_for(line[-20:])
        self.terminal.press("enter")
        self.told(*words)

    def choose_first(self) -> None:
        """Go from the prompt to the first message; through a long one in several steps."""
        terminal, asked = self.terminal, slice(2, 2 + len(CAPITAL))
        leave_prompt(terminal)
        terminal.wait_for(
            lambda: terminal.press("up") or any(it[asked] == CAPITAL for it in terminal.lines[1:]),
            what="the first message",
        )
        terminal.press(*["up"] * 9)

    def click(self, on: str, shows: str) -> None:
        """Click on a text; again where a click found the screen being laid out anew."""
        terminal, again = self.terminal, 0.0

        def shown() -> bool:
            nonlocal again
            if shows not in terminal.text and on in terminal.text and time.monotonic() > again:
                again = time.monotonic() + 5
                column, row = terminal.where(on)
                for end in "Mm":
                    terminal.type(f"\x1b[<0;{column + 3};{row + 1}{end}")
            return shows in terminal.text

        terminal.wait_for(shown, what=shows)

    def empty(self) -> None:
        self.terminal.press("ctrl+u")
        self.terminal.wait_for("Ask anything")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_a_walk(size: tuple[int, int], environ: Mapping[str, str], tmp_path: Path) -> None:
    walk = Walk(size, environ, tmp_path)
    chapters: list[Callable[[Walk], None]] = [
        one_shots,
        first_conversation,
        turns_and_versions,
        models,
        two_windows,
        after_a_restart,
        line_mode,
    ]
    for chapter in chapters:
        chapter(walk)
    assert len(set(walk.steps)) >= STEPS, walk.steps
    walk.store.close()


def one_shots(walk: Walk) -> None:
    walk.step("how to get a real pair is said once")
    assert "for a real one" in walk.said("run", "--max-tokens", "2", "hello")
    assert "for a real one" not in walk.said("run", "--max-tokens", "2", "hello")
    walk.step("a search without results says so")
    assert "no conversation has zzzz" in walk.said("history", "search", "zzzz")
    walk.step("a number after --limit")
    assert "hello" in walk.said("history", "--limit", "3")
    walk.step("an unknown conversation in words")
    assert "zz" in walk.said("history", "show", "zz")
    walk.step("a broken settings file does not stop the app, and is named")
    (walk.home / "config").mkdir(exist_ok=True)
    (walk.home / "config" / "config.toml").write_text("[app\n")


def first_conversation(walk: Walk) -> None:
    with walk.on_screen(macspec(*GREEDY)) as terminal:
        terminal.wait_for("Ask anything")
        walk.told("config edit")
        (walk.home / "config" / "config.toml").unlink()
        walk.step("what macspec run wrote is not reopened")
        assert "hello" not in terminal.text
        terminal.wait_for("● ")
        walk.step("what can be done now leads the list of commands")
        terminal.type("/")
        terminal.wait_for("/new ")
        assert "/stop" not in terminal.text
        walk.step("a bare slash is no message")
        terminal.press("enter")
        walk.told("write a command after the slash")
        walk.step("Ctrl+C clears the prompt first, and says how long it counts")
        terminal.press("ctrl+u")
        terminal.type("half a thought")
        terminal.wait_for("❯ half a thought")
        terminal.press("ctrl+c")
        terminal.wait_for(lambda: b"press Ctrl+C again to quit" in terminal.output)
        terminal.wait_for("Ask anything")
        walk.step("the hint ends with its window")
        terminal.wait_for(lambda: "again to quit" not in terminal.text)
        terminal.press("up")
        terminal.wait_for("❯ half a thought")
        walk.step("Enter takes the highlighted completion")
        walk.empty()
        terminal.type("/exp")
        terminal.wait_for("/export ")
        terminal.press("enter")
        walk.told("this conversation is empty")

        walk.step("a reply has one line of numbers, and no ratio of a few tokens")
        walk.empty()
        ask_and_wait(terminal, CAPITAL)
        assert "Paris." in terminal.text
        assert not RATIO.search(terminal.text)
        walk.step("a prompt that is too long is counted and kept")
        terminal.paste("\n".join(["all the words of a very long paste that never ends"] * 300))
        terminal.wait_for("too long")
        terminal.press("enter")
        walk.told("not sent:")
        walk.told("tokens: too long")
        walk.step("it does not stay in the way")
        terminal.press("ctrl+c")
        terminal.wait_for("Ask anything")
        ask_and_wait(terminal, "Who are you?")
        assert len(walk.texts()) == 4

        walk.step("a message sent while a reply streams is queued, and can be taken back")
        # Plain decoding, so that the reply is not over before the queue was looked at.
        walk.command("/method off", "method off from the next round")
        walk.command("/temperature 100", "temperature 100 from the next round")
        ask(terminal, STORY)
        terminal.wait_for("▶ ")
        ask(terminal, "And then?")
        terminal.wait_for("queued")
        terminal.press("up")
        terminal.wait_for(lambda: "❯ And then?" in terminal.text and "queued" not in terminal.text)
        terminal.press("enter")
        terminal.wait_for("queued")
        walk.step("Esc stops the reply and gives the queue back")
        terminal.press("escape")
        terminal.wait_for("■ Stopped")
        terminal.wait_for("❯ And then?")
        walk.empty()
        walk.command("/temperature 0", "temperature 0 from the next round")
        walk.command("/method auto", "method auto from the next round")
        walk.step("Ctrl+S goes through the drafters in the order of the dial")
        terminal.press("ctrl+s")
        walk.told("method eagle")
        terminal.press("ctrl+s")
        walk.told("method ngram")
        walk.step("where nothing is drafted there is no acceptance")
        walk.command("/method off", "method off from the next round")
        ask_and_wait(terminal, "What is 2 plus 3?")
        last = [line for line in terminal.lines if re.search(r"\d tokens? ·", line)][-1]
        assert "accepted" not in last
        walk.command("/method auto", "method auto from the next round")
        walk.step("a typing mistake is told with what was meant")
        walk.command("/undo2", "did you mean /undo?")
        walk.step("a value that is not a number, in words")
        walk.command("/temperature hot", '"hot" is not a number')
        walk.step("the theme is the highlighted one")
        walk.empty()
        terminal.type("/theme macspec-l")
        terminal.wait_for("macspec-light")
        terminal.press("enter")
        file = walk.home / "config" / "config.toml"
        terminal.wait_for(lambda: file.exists() and "macspec-light" in file.read_text())
        leave(walk)


def turns_and_versions(walk: Walk) -> None:
    with walk.on_screen(SHELL) as terminal:
        terminal.type(f"{' '.join(macspec(*GREEDY, '--max-tokens', '40'))}\r")
        terminal.wait_for("Ask anything")
        terminal.wait_for("What is 2 plus 3?")
        before = walk.texts()
        walk.step("Ctrl+Z suspends, and fg brings everything back")
        terminal.type("kept")
        terminal.wait_for("❯ kept")
        terminal.press("ctrl+z")
        terminal.wait_for(lambda: not terminal.full_screen and "Stopped" in terminal.text)
        terminal.type("fg\r")
        terminal.wait_for("❯ kept")
        assert terminal.full_screen
        walk.empty()
        walk.step("e edits the message that is chosen")
        walk.choose_first()
        terminal.press("e")
        terminal.wait_for("editing message 1")
        terminal.press("escape")
        terminal.wait_for("Ask anything")
        walk.step("r regenerates the reply to the message that is chosen")
        walk.choose_first()
        terminal.press("r")
        terminal.wait_for(lambda: len(walk.texts()) == 2, what="another first reply")
        terminal.wait_for(lambda: walk.store.thread(3)[-1].state != OPEN, what="its end")
        terminal.wait_for(lambda: "‹ 2/2 ›" in terminal.text and " tokens · " in terminal.text)
        walk.step("walking back brings back what followed")
        terminal.press("left")
        walk.told("version 1 of 2")
        terminal.wait_for(lambda: walk.texts() == before, what="the first version")
        walk.step("a click on the versions goes to the next one")
        terminal.press(*["pageup"] * 9)
        terminal.wait_for(lambda: terminal.lines[1][2:5] == "You" and "‹ 1/2 ›" in terminal.text)
        walk.click("2 ›", "‹ 2/2 ›")
        terminal.press("left")
        terminal.wait_for(lambda: walk.texts() == before)
        walk.step("a command in one burst is a command in the conversation too")
        terminal.type("/foo\r")
        walk.told("unknown command /foo")
        assert len(walk.store.chats()) == 3
        walk.step("find goes from match to match")
        walk.command("/find is Paris.", "match 1 of")
        walk.step("paths are completed, and Enter keeps the name that is typed")
        (walk.home / "notes").mkdir()
        walk.empty()
        terminal.type("/export no")
        terminal.wait_for("notes/")
        terminal.press("tab")
        terminal.wait_for("❯ /export notes/")
        terminal.type("talk.json\r")
        walk.told("exported to")
        assert json.loads((walk.home / "notes" / "talk.json").read_text())
        walk.step("the same export again replaces the file")
        walk.command("/export notes/talk.json", "do the same again to replace it")
        walk.command("/export notes/talk.json", "exported to")
        walk.step("/clear begins a new conversation")
        walk.command("/clear", "new conversation; the previous one is kept")
        walk.step("a search jumps to its hit")
        terminal.press("ctrl+f")
        terminal.wait_for("─ Conversations ─")
        terminal.wait_for("hello")
        terminal.type("France")
        terminal.wait_for(lambda: CAPITAL in terminal.text and "hello" not in terminal.text)
        terminal.press("enter")
        terminal.wait_for("France is Paris.")
        walk.step("the help keeps its columns")
        terminal.press("tab")
        terminal.press("?")
        terminal.wait_for("While you write")
        (line,) = [line for line in terminal.lines if "Alt+Enter" in line]
        assert re.search(r"^[ │]*(Ctrl\+J|  )", line.partition("│ ")[2] or line)
        terminal.press("escape")
        terminal.wait_for(lambda: "While you write" not in terminal.text)
        terminal.press("escape")
        leave(walk, "$")


def models(walk: Walk) -> None:
    with walk.on_screen(macspec(*GREEDY, "--chat", "3")) as terminal:
        terminal.wait_for("Ask anything")
        terminal.wait_for("● ")
        walk.step("a wrong folder has a reason, and the pair stays")
        walk.command("/models /nowhere/at/all", "no such folder")
        terminal.wait_for("● built-in")
        walk.step("the title has base names")
        draft = pocket().draft
        walk.command(f"/models {draft} none", "now using")
        terminal.wait_for(lambda: draft.name in terminal.lines[0])
        assert "/" not in terminal.lines[0].replace(CAPITAL, "")
        walk.step("what was measured of another pair is gone")
        terminal.wait_for(lambda: not RATIO.search(terminal.text), what="nothing measured")
        walk.step("/models built-in says the new name")
        walk.command("/models built-in", "now using built-in target")
        walk.step("Enter right after a typed path is taken")
        terminal.press("ctrl+l")
        terminal.wait_for("choose a target")
        terminal.type("/nowhere/else\r")
        terminal.wait_for("│ there is no such folder")
        assert "choose a target" in terminal.text
        terminal.press("escape")
        terminal.wait_for("Ask anything")
        walk.step("/setup proposes a pair, its size and its licence")
        walk.empty()
        terminal.type("/setup\r")
        terminal.wait_for("─ Models")
        terminal.press("escape")
        terminal.wait_for(lambda: "Models:" in terminal.text or "Ask anything" in terminal.text)
        terminal.press("escape")
        terminal.wait_for("Ask anything")
        walk.step("compare says whether the text is the same")
        ask_and_wait(terminal, "What is 3 plus 4?")
        walk.command("/compare keyed", "same text")
        terminal.wait_for("Esc close")
        terminal.press("escape")
        terminal.wait_for(lambda: "Plain against" not in terminal.text)
        leave(walk)


def two_windows(walk: Walk) -> None:
    with walk.on_screen(macspec(*GREEDY, "--chat", "3")) as terminal:
        terminal.wait_for("● ")
        walk.step("a conversation that another window deleted says so")
        walk.store.delete(3)
        walk.told("deleted in another window; a message restores it")
        walk.step("and comes back with the next message")
        ask_and_wait(terminal, "What is 5 plus 1?")
        assert walk.store.chat(3).deleted is None
        assert "What is 5 plus 1?" in walk.texts(3)
        walk.step("Ctrl+C twice quits, and all is kept")
        terminal.press("ctrl+c", "ctrl+c")
        assert terminal.ended() == 0
        terminal.assert_restored()


def after_a_restart(walk: Walk) -> None:
    with walk.on_screen(macspec(*GREEDY)) as terminal:
        walk.step("the last conversation is open, with its context")
        terminal.wait_for("What is 5 plus 1?")
        terminal.wait_for("● ")
        walk.empty()
        terminal.type("/stats\r")
        terminal.wait_for("─ Statistics ─")
        terminal.wait_for(lambda: re.search(r"context [━╸─]+ +[1-9]\d* /", terminal.text))
        terminal.press("escape")
        terminal.wait_for(lambda: "─ Statistics ─" not in terminal.text)
        walk.step("a window may get smaller and wider")
        terminal.resize(40, 12)
        terminal.wait_for("Ask anything")
        terminal.resize(*walk.size)
        terminal.signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        terminal.assert_restored()


def line_mode(walk: Walk) -> None:
    with walk.on_screen(macspec("chat", "--plain", *GREEDY, "--max-tokens", "12")) as terminal:
        walk.told("/help lists the commands")
        walk.step("line mode: a tab that is pasted stays one")
        terminal.type("one\ttwo\r")
        terminal.wait_for(lambda: walk.texts(3)[-2:-1] == ["one\ttwo"], what="a tab")
        terminal.wait_for(lambda: walk.store.thread(3)[-1].state != OPEN, what="a reply")
        walk.step("line mode: the new name after a switch")
        terminal.type(f"/models {pocket().draft} none\r")
        walk.told("now using")
        terminal.type("/models built-in\r")
        walk.told("now using built-in target with")
        terminal.type("/quit\r")
        assert terminal.ended() == 0
        terminal.assert_restored()


def leave(walk: Walk, shell: str = "") -> None:
    """Quit the app, and the shell with this prompt that it is in."""
    terminal = walk.terminal
    walk.empty()
    terminal.type("/quit\r")
    if shell:
        terminal.wait_for(lambda: [line for line in terminal.lines if line][-1] == shell)
        terminal.type("exit\r")
    assert terminal.ended() == 0
