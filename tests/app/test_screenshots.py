"""README's pictures: the command that makes them, with the real engine."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURES = ROOT / "assets" / "screenshots"
COMMAND = Path(__file__).with_name("screenshots.py")


def words(picture: Path) -> str:
    """The text of a picture."""
    svg = picture.read_text(encoding="utf-8")
    return " ".join(unescape(re.sub(r"<style.*?</style>|<[^>]+>", "", svg, flags=re.S)).split())


@pytest.mark.slow
def test_the_command_makes_a_picture_of_the_real_engine(tmp_path: Path) -> None:
    command = [sys.executable, str(COMMAND), str(tmp_path), "--only", "narrow"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "narrow.svg"
    assert done.stdout.split() == [str(made)]
    assert "How does the draft model help?" in words(made)
    assert re.search(r"\d+\.\d tok/s", words(made))
    assert "url(http" not in made.read_text(encoding="utf-8")


def test_pictures_fetch_nothing_and_show_what_they_are_of() -> None:
    shown = {file.stem: words(file) for file in PICTURES.glob("*.svg")}
    assert set(shown) == {"chat", "light", "compare", "models", "narrow"}
    assert "Sliders" in shown["chat"]
    assert "same text" in shown["compare"]
    assert "choose a target" in shown["models"]
    assert not any(
        "@font-face" in file.read_text(encoding="utf-8") for file in PICTURES.glob("*.svg")
    )
