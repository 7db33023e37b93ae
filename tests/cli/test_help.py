"""Help and version: quick because light, complete, and shown by the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from reference import MARK, README, commands, reference

from macspec.cli.main import main

HEAVY = ("mlx", "mlx_lm", "textual", "transformers", "numpy", "huggingface_hub", "tomlkit")


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_nothing_heavy_is_imported() -> None:
    asked = [["--version"], ["chat", "--keys"], *([*words, "--help"] for words in commands())]
    code = (
        "import sys; from macspec.cli.main import main\n"
        f"for arguments in {asked!r}:\n"
        "    assert main(arguments) == 0\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    assert not heavy, (arguments, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: macspec") == len(commands()) > 20


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_help_fits_and_explains_and_ends_with_an_example(words: tuple[str, ...]) -> None:
    text = commands()[words].format_help()
    assert max(map(len, text.splitlines())) <= 80
    _, _, example = text.rpartition("\n\nexample:\n")
    assert example
    assert all(line.startswith("  ") and "macspec " in line for line in example.splitlines())
    for option, rest, following in re.findall(r"^  (--[a-z-]+)(.*)\n(.*)", text, re.MULTILINE):
        assert re.search(r" {2,}\S", rest) or re.match(r" {20,}\S", following), option


def test_the_reference_shows_all_of_it() -> None:
    """If not: python tests/cli/reference.py."""
    _, mark, shown = README.read_text(encoding="utf-8").partition(MARK)
    assert mark + shown == reference()


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"macspec {version('macspec')}\n"
