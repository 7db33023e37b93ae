"""``macspec chat`` before there is a screen: what it goes on with, and what it refuses."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from macspec import diagnostics
from macspec.app.start import configured, no_screen, recall
from macspec.cli.main import build_parser
from macspec.cli.options import fill
from macspec.config.effective import load
from macspec.config.paths import state_folder
from macspec.errors import BadOptionError
from macspec.store import GenerationMetadata, Store, store_path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings and conversations."""
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path))
    return tmp_path


def options(*arguments: str) -> argparse.Namespace:
    parsed = build_parser().parse_args(["chat", *arguments])
    recall(parsed)
    parsed.store.close()
    return parsed


def answered(text: str, making: GenerationMetadata) -> int:
    store = Store(store_path())
    chat = store.new_chat()
    prompt = store.add(chat.id, None, text)
    store.reply(chat.id, prompt.id, making).finish("end")
    store.close()
    return chat.id


def test_without_conversations_there_is_a_new_one(home: Path) -> None:
    assert options().chat is None


def test_it_goes_on_with_the_last_one_and_its_models(home: Path) -> None:
    first = answered("one", GenerationMetadata(model="owner/large", draft="owner/small"))
    last = answered("two", GenerationMetadata())
    assert (options().chat, options().target, options().draft) == (last, "built-in", "none")
    named = options("--chat", str(first))
    assert (named.chat, named.target, named.draft) == (first, "owner/large", "owner/small")
    given = options("--chat", str(first), "--target", "owner/other")
    assert (given.target, given.draft, given.recalled) == ("owner/other", None, False)
    assert options("--new").chat is None


def test_an_unknown_conversation(home: Path) -> None:
    with pytest.raises(BadOptionError, match="there is no conversation 7"):
        options("--chat", "7")


def test_the_command_line_comes_before_the_settings(home: Path) -> None:
    file = home / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text('[sampling]\ntemperature = 0.2\ntop_k = 5\n[models]\ntarget = "my/target"\n')
    parsed = options("--temperature", "1", "--depth", "3", "--system", "Be brief.")
    effective = fill(parsed)
    config = configured(parsed, effective.config)
    assert (config.sampling.temperature, config.sampling.top_k) == (1.0, 5)
    assert (config.speculation.depth, config.reply.system) == (3, "Be brief.")
    assert config.models.target == "my/target"
    assert load().config == effective.config


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "macspec", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "config", "line"),
    [
        (["--chat", "5"], "", "there is no conversation 5"),
        ([], '[keys]\ntnt = "f5"\n', "keys.tnt in the settings: unknown action"),
        ([], '[keys]\ntint = "ctrl+c"\n', "ctrl+c cannot be changed"),
        (["--temperature", "200"], "", "--temperature: must be 0 or a number from"),
        (["--depth", "many"], "", "--depth: must be auto or a whole number from 0 to 32"),
        (["--chat", "5", "--new"], "", "not allowed with argument --chat"),
    ],
)
def test_a_mistake_is_one_line(home: Path, arguments: list[str], config: str, line: str) -> None:
    if config:
        (home / "config").mkdir()
        (home / "config" / "config.toml").write_text(config)
    done = run(*arguments)
    assert done.returncode == 2
    (error,) = done.stderr.splitlines()
    assert error.startswith("macspec: error: ")
    assert line in error
    assert done.stdout == ""


def test_nothing_is_kept_where_that_is_asked_for(home: Path) -> None:
    chat = answered("one", GenerationMetadata())
    done = run("--chat", str(chat), "--no-save")
    assert "--chat cannot be used with --no-save" in done.stderr


def test_why_there_is_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert no_screen() == "TERM is dumb"
    monkeypatch.setenv("TERM", "xterm")
    assert no_screen() == "standard input is not a terminal"


def test_without_a_terminal_textual_is_not_even_imported(home: Path) -> None:
    code = (
        "import sys; from macspec.cli.main import main; status = main([]); "
        "heavy = [name for name in ('textual', 'mlx', 'rich') if name in sys.modules]; "
        "print(heavy); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_report_has_no_text_of_the_users(
    home: Path, monkeypatch: pytest.MonkeyPatch, macspec: Callable[..., object]
) -> None:
    answered("a secret question", GenerationMetadata())
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text('[reply]\nsystem = "a secret order"\n')
    state_folder().mkdir(parents=True, exist_ok=True)
    (state_folder() / "engine.log").write_text("old\n" * 200 + "the last \x1b[31mline\n")
    monkeypatch.setenv("HOME", str(home))
    text = "\n".join(diagnostics.lines())
    assert "secret" not in text
    assert "reply.system = (a text) (line 2)" in text
    assert "the last ␛[31mline" in text
    assert text.count("  old\n") == diagnostics.TAIL - 1
    assert str(home) not in text
    assert "pair             built-in, draft built-in head" in text
    assert "macspec          0." in text
    outcome = macspec("check", "--report", "--target", "owner/large")
    assert b"owner/large, draft none" in outcome.out  # type: ignore[attr-defined]
    path = diagnostics.report_file("owner/large", None)
    assert "owner/large, draft none" in path.read_text()
