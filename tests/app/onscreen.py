"""A conversation with the real program on a terminal: asking, and waiting for what it shows."""

from __future__ import annotations

import re
from contextlib import suppress

from terminal import Terminal

CAPITAL = "What is the capital of France?"


def ask(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.wait_for(f"❯ {text}" if len(text) <= 30 else text[-30:])
    terminal.press("enter")


def ask_and_wait(terminal: Terminal, question: str) -> None:
    """Ask what was not asked before, and wait for the whole reply."""
    assert f"▎ {question}" not in terminal.text, "an older answer would do"
    ask(terminal, question)
    wait_for_answer(terminal, question)


def wait_for_answer(terminal: Terminal, asked: str) -> None:
    """Wait until a question has a reply with its numbers below, and nothing is being written.

    What was there before has to be gone.
    """

    def there() -> object:
        _, found, after = terminal.text.rpartition(f"▎ {asked}")
        done = re.search(r"\d tokens? ·", after)
        return found and done and "▶ writing" not in terminal.text

    terminal.wait_for(there, what=f"an answer to {asked!r}")


def leave_prompt(terminal: Terminal) -> None:
    """Go from the prompt, which has the focus, to the transcript."""
    frame = terminal.look("╭").fg
    terminal.press("tab")
    terminal.wait_for(lambda: terminal.look("╭").fg != frame, what="the prompt is left")


def quit_by_ctrl_c(terminal: Terminal) -> int:
    """Press Ctrl+C for the second time; twice more where a busy machine was too late for that."""
    terminal.press("ctrl+c")
    with suppress(AssertionError):
        return terminal.ended(20)
    terminal.press("ctrl+c", "ctrl+c")
    return terminal.ended()


def passes(terminal: Terminal) -> int:
    """Verify passes, as the panel counts them."""
    found = re.search(r"passes +([\d,]+)", terminal.text)
    return int(found[1].replace(",", "")) if found else 0
