"""A conversation with the real program on a terminal: asking, and waiting for what it shows."""

from __future__ import annotations

import re

from terminal import Terminal

CAPITAL = "What is the capital of France?"


def ask(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.wait_for(f"❯ {text[-30:]}" if len(text) < 30 else text[-30:])
    terminal.press("enter")


def wait_for_answer(terminal: Terminal, asked: str) -> None:
    """Wait until a question has a reply with its numbers below, and nothing is being written."""

    def there() -> object:
        _, found, after = terminal.text.rpartition(f"▎ {asked}")
        done = re.search(r"\d tokens? ·", after)
        return found and done and "▶ writing" not in terminal.text

    terminal.wait_for(there, what=f"an answer to {asked!r}")


def passes(terminal: Terminal) -> int:
    """Verify passes, as the panel counts them."""
    found = re.search(r"passes +([\d,]+)", terminal.text)
    return int(found[1].replace(",", "")) if found else 0
