"""Help and version: quick because light, and the README shows the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"

HEAVY = ("mlx", "mlx_lm", "textual", "transformers", "numpy", "huggingface_hub")

SHOWN = [
    ["--help"],
    ["chat", "--help"],
    ["run", "--help"],
    ["check", "--help"],
    ["models", "--help"],
    ["history", "--help"],
    ["config", "--help"],
    ["bench", "--help"],
    ["bench", "simulate", "--help"],
    ["bench", "specbench", "--help"],
]
"""What README shows."""

COMMANDS = [
    *SHOWN,
    *(["models", name, "--help"] for name in ("pull", "rm", "plan", "quantize", "convert")),
    *(
        ["history", name, "--help"]
        for name in ("list", "search", "show", "export", "import", "rename", "delete", "undo")
    ),
    *(["config", name, "--help"] for name in ("show", "set", "unset", "edit", "path")),
]


def run(*arguments: str) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "macspec", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("arguments", [["--version"], ["chat", "--keys"], *COMMANDS])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from macspec.cli.main import main; "
        f"status = main({arguments!r}); "
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]; "
        "print(heavy, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith(("macspec ", "usage: macspec", "Keys "))


@pytest.mark.parametrize("arguments", COMMANDS)
def test_every_help_ends_with_an_example(arguments: list[str]) -> None:
    _, _, example = run(*arguments).rpartition("\n\nexample:\n")
    assert all(line.startswith("  ") and "macspec " in line for line in example.splitlines())
    assert example


@pytest.mark.parametrize("arguments", COMMANDS)
def test_help_fits_80_columns(arguments: list[str]) -> None:
    assert max(map(len, run(*arguments).splitlines())) <= 80


@pytest.mark.parametrize("arguments", COMMANDS)
def test_every_option_says_what_it_does(arguments: list[str]) -> None:
    options = re.findall(r"^  (--[a-z-]+)(.*)\n(.*)", run(*arguments), re.MULTILINE)
    for option, rest, following in options:
        assert re.search(r" {2,}\S", rest) or re.match(r" {20,}\S", following), option


@pytest.mark.parametrize("arguments", [*SHOWN, ["chat", "--keys"]])
def test_the_readme_shows_this_help(arguments: list[str]) -> None:
    readme = README.read_text(encoding="utf-8")
    shown = f"$ macspec {' '.join(arguments)}\n{run(*arguments)}"
    assert shown in readme


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert run("--version") == f"macspec {version('macspec')}\n"
