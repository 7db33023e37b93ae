"""A program in a terminal of its own."""

from __future__ import annotations

import os
import sys

import pytest
from pseudoterminal import Terminal

from macspec.errors import MacspecError

ECHO = """
import sys, tty
assert open("/dev/tty").isatty()
tty.setraw(0)
print("\\x1b[2J\\x1b[1;1Hre\\x1b[31mady", end="", flush=True)
while (key := sys.stdin.read(1)) != "q":
    print(f"\\x1b[3;4H<{key}>", end="", flush=True)
sys.exit(3)
"""


def test_keys_go_in_and_texts_come_out() -> None:
    with Terminal([sys.executable, "-c", ECHO], os.environ, size=(20, 5)) as terminal:
        assert terminal.wait_for("ready") > terminal.began
        pressed = terminal.press("б")
        assert terminal.wait_for("<б>") > pressed
        terminal.press("x")
        terminal.wait_for("<x>")
        terminal.wait_for("<б>", ever=True)
        with pytest.raises(MacspecError, match=r"never came to '<б>': .*<x>"):
            terminal.wait_for("<б>", patience=0.01)
        with pytest.raises(MacspecError, match="does not end"):
            terminal.ended(0.01)
        pressed = terminal.press("q")
        assert terminal.ended() > pressed
        assert terminal.process.returncode == 3
        with pytest.raises(MacspecError, match="ended with status 3 before 'more'"):
            terminal.wait_for("more")


def test_whoever_goes_on_is_ended() -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print('so'); signal.pause()"
    with (
        pytest.MonkeyPatch.context() as patch,
        Terminal([sys.executable, "-c", stubborn], os.environ) as terminal,
    ):
        patch.setattr("pseudoterminal.GRACE", 0.05)
        terminal.wait_for("so")
    assert terminal.process.poll() == -9
