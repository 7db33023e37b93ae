"""The user's own editor, and everything that it may do to a prompt."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from macspec.app import outside
from macspec.app.outside import EditorError, written

Editor = Callable[[str], dict[str, str]]


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    """An environment whose editor is a piece of Python that has ``path``."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(outside, "AT_ONCE_S", 0.0)

    def editing(code: str) -> dict[str, str]:
        script = tmp_path / "an editor.py"
        script.write_text(f"import os, pathlib, sys\npath = pathlib.Path(sys.argv[-1])\n{code}\n")
        return {"EDITOR": shlex.join([sys.executable, str(script), "--flag"])}

    return editing


def left(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("macspec-*"))


def test_the_text_goes_there_and_comes_back(editor: Editor, tmp_path: Path) -> None:
    environ = editor(
        "assert path.stat().st_mode & 0o777 == 0o600\n"
        "assert path.parent.stat().st_mode & 0o777 == 0o700\n"
        "assert sys.argv[1] == '--flag'\n"
        "path.write_text(path.read_text().upper() + '\\n')"
    )
    assert written("one\né", environ) == "ONE\nÉ"
    assert written("one\n", environ) == "ONE\n\n"
    assert left(tmp_path) == []


def test_visual_goes_before_editor(editor: Editor) -> None:
    environ = {**editor("path.write_text('visual')"), "VISUAL": " "}
    assert written("x", environ) == "visual"
    environ = {"VISUAL": environ["EDITOR"], "EDITOR": "false"}
    assert written("x", environ) == "visual"


def test_nothing_changed_is_no_error(editor: Editor, tmp_path: Path) -> None:
    assert written("as it was", editor("pass")) == "as it was"
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("sys.exit(3)", "ended with status 3; the prompt is as it was$"),
        ("path.unlink()", "No such file.*; the prompt is as it was$"),
    ],
)
def test_what_fails_leaves_nothing_behind(
    editor: Editor, tmp_path: Path, code: str, says: str
) -> None:
    with pytest.raises(EditorError, match=says):
        written("x", editor(code))
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "says", "kept"),
    [
        ("path.write_text('new'); sys.exit(1)", "ended with status 1", b"new"),
        ("path.write_bytes(b'\\xff')", "no text in UTF-8", b"\xff"),
    ],
)
def test_what_was_written_is_never_lost(
    editor: Editor, tmp_path: Path, code: str, says: str, kept: bytes
) -> None:
    with pytest.raises(EditorError, match=f"{says}.*what you write is in") as error:
        written("x", editor(code))
    (folder,) = left(tmp_path)
    assert str(folder / "prompt.md") in str(error.value)
    assert (folder / "prompt.md").read_bytes() == kept


def test_one_that_opens_a_window_and_returns_keeps_its_file(
    editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "AT_ONCE_S", 1e9)
    with pytest.raises(EditorError, match=r"did not wait.*--wait") as error:
        written("x", editor("pass"))
    (folder,) = left(tmp_path)
    assert str(folder / "prompt.md") in str(error.value)


@pytest.mark.parametrize("command", ["no-such-editor", '"unbalanced', "''"])
def test_no_editor_says_so(editor: Editor, tmp_path: Path, command: str) -> None:
    with pytest.raises(EditorError, match=r"cannot start the editor"):
        written("x", {"EDITOR": command, "PATH": ""})
    assert left(tmp_path) == []


def test_no_room_for_the_file(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    with pytest.raises(EditorError, match="no file for an editor"):
        written("x", editor("pass"))


def test_ctrl_c_is_the_editors(editor: Editor) -> None:
    before = signal.getsignal(signal.SIGINT)
    environ = editor(
        "import signal\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        f"os.kill({os.getpid()}, signal.SIGINT)\n"
        "path.write_text('survived')"
    )
    assert written("x", environ) == "survived"
    assert signal.getsignal(signal.SIGINT) is before
