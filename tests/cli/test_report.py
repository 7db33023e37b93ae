"""``macspec check --report``: what helps, and nothing of what was said or of who said it."""

from __future__ import annotations

import getpass
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macspec import diagnostics
from macspec.app.leaving import unforeseen
from macspec.config.paths import config_file, state_folder
from macspec.store import GenerationMetadata, Store, store_path
from macspec.worker import Log, child

NAME = "wilhelmina"
SECRET = "the launch codes are 0000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of somebody who has used macspec."""
    home = tmp_path / "Users" / NAME
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, NAME)
    monkeypatch.setenv("MACSPEC_HOME", str(home / ".macspec"))
    assert getpass.getuser() == NAME
    config_file().parent.mkdir(parents=True)
    config_file().write_text(
        f"""[models]
target = "{home}/models/Large"
[reply]
system = "{SECRET}"
[speculation]
depth = 3
[keys]
help = "ctrl+h"
"""
    )
    store = Store(store_path())
    chat = store.new_chat(system=SECRET)
    prompt = store.add(chat.id, None, SECRET)
    making = GenerationMetadata(
        f"{home}/models/Large", "owner/Small", method="auto", depth=4, rule="block"
    )
    answer = store.reply(chat.id, prompt.id, making)
    answer.append(f"They are: {SECRET}")
    answer.finish("end")
    store.rename(chat.id, SECRET)
    store.set_unsent(chat.id, SECRET)
    store.close()
    return home


def error() -> ValueError:
    """An error that quotes what was said, as one that is raised."""
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        return error


def fill_logs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine and the app fail with it."""
    with monkeypatch.context() as patch:
        stream = io.StringIO()
        patch.setattr(sys, "stderr", stream)
        child.log(error())
    log = Log()
    log.begin(123)
    said = f"{stream.getvalue()}warning: {home}/models/Large is slow\n\x1b[31mred\n"
    log.write(said.encode())
    panic = f"thread 'a' panicked at lib.rs:1:2:\nbyte 1 of `{SECRET}`\n{SECRET}\n"
    log.write(f"{panic}stack backtrace:\nthread 'a' panicked at '{SECRET}', lib.rs\n".encode())
    unforeseen(error())


def test_it_helps_and_tells_nothing(
    home: Path, macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_logs(home, monkeypatch)
    done = macspec("check", "--report")
    assert done.status == 0, done.err
    text = done.out.decode()
    for fact in (
        "macspec ",
        "mlx-lm ",
        "textual ",
        "chip ",
        "memory ",
        "models.target = ~/models/Large (line 2)",
        "reply.system = (a text) (line 4)",
        "speculation.depth = 3",
        "keys.help = ctrl+h",
        "last target      ~/models/Large",
        "last draft       owner/Small",
        "method auto, depth 4, rule block",
        "ValueError",
        "warning: ~/models/Large is slow",
    ):
        assert fact in text, f"{fact} is not in\n{text}"
    assert "test_report.py" in text, "where the error came from"
    for leak in (SECRET, "launch codes", "0000", NAME, str(home)):
        assert leak.lower() not in text.lower()
    assert "\x1b" not in text


def test_it_is_written_for_the_app_too(home: Path) -> None:
    path = diagnostics.report_file(None, None)
    assert path == state_folder() / "report.txt"
    text = path.read_text()
    assert SECRET not in text
    assert NAME not in text


def test_nothing_was_ever_done(tmp_path, monkeypatch, macspec: Callable[..., Any]) -> None:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "new"))
    done = macspec("check", "--report")
    assert done.status == 0
    text = done.out.decode()
    assert "last reply       none saved" in text
    assert "No such file" in text
    assert not (tmp_path / "new" / "data").exists()


def test_broken_settings_are_reported(home: Path, macspec: Callable[..., Any]) -> None:
    config_file().write_text("[models\n")
    done = macspec("check", "--report")
    assert done.status == 0
    assert "config.toml, line 1" in done.out.decode()
    assert NAME not in done.out.decode()


def test_a_name_that_is_a_part_of_a_word_stays(home: Path, monkeypatch) -> None:
    monkeypatch.setattr(diagnostics, "_user", lambda: "max")
    line = diagnostics._homeless("max_tokens = 3, --max-tokens, /tmp/max/x")
    assert line == "max_tokens = 3, --(user)-tokens, /tmp/(user)/x"
    monkeypatch.setattr(diagnostics, "_user", lambda: "al")
    assert diagnostics._homeless("al is all") == "al is all"


def test_the_folder_behind_a_link_is_the_home_too(home: Path, tmp_path, monkeypatch) -> None:
    link = tmp_path / "linked"
    os.symlink(home, link)
    monkeypatch.setenv("HOME", str(link))
    assert diagnostics._homeless(f"{link}/a {home}/b") == "~/a ~/b"


@pytest.mark.usefixtures("home")
def test_tokens_in_a_log_are_left_out() -> None:
    Log().write(b"Authorization: Bearer secret-1234\nlogin with hf_AbCdEfGhIjKlMnOp failed\n")
    text = "\n".join(diagnostics.lines())
    assert "login with (token) failed" in text
    assert "secret-1234" not in text
    assert "hf_AbC" not in text
