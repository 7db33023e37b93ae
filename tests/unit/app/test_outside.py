"""The clipboard and the editor: text comes and goes whole, or nothing is lost."""

from __future__ import annotations

import base64
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import App

from macspec.app import outside
from macspec.app import outside as clipboard
from macspec.app.outside import ClipboardError, EditorError, copy, put, written

Programs = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "TIMEOUT_S", 60.0)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """An environment in which programs keep what they are given, and how they were called."""

    def there(*names: str, status: int = 0) -> dict[str, str]:
        for name in names:
            path = tmp_path / name
            path.write_text(
                f"#!/bin/sh\nread -r all; echo \"$all|$*|$LC_ALL\" > '{tmp_path}/{name}.got'\n"
                f"exit {status}\n"
            )
            path.chmod(0o755)
        return {"PATH": f"{tmp_path}:/bin:/usr/bin", "TERM": "xterm"}

    return there


class Terminal(list[str]):
    """What was written."""

    def payload(self) -> bytes:
        text = "".join(self).replace("\x1b\x1b", "\x1b")
        return base64.b64decode(re.findall(r"\x1b\]52;c;([^\a]*)\a", text)[-1])


def test_macos_has_one_program(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert put("é", Terminal().append, programs("pbcopy")) == "pbcopy"
    assert (tmp_path / "pbcopy.got").read_text() == "é||en_US.UTF-8\n"


@pytest.mark.parametrize(
    ("variable", "name", "arguments"),
    [
        ("WAYLAND_DISPLAY", "wl-copy", ""),
        ("DISPLAY", "xclip", "-selection clipboard"),
        ("DISPLAY", "xsel", "--clipboard --input"),
    ],
)
def test_linux_has_others(
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    name: str,
    arguments: str,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    environ = {**programs(name), variable: ":0"}
    assert put("text", None, environ) == name
    assert (tmp_path / f"{name}.got").read_text() == f"text|{arguments}|\n"


def test_one_that_fails_is_passed_over(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    environ = {**programs("wl-copy", status=1), "WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}
    terminal = Terminal()
    assert put("text", terminal.append, environ).startswith("OSC 52")
    assert put("text", terminal.append, {**environ, **programs("xclip")}) == "xclip"


@pytest.mark.parametrize("variable", ["SSH_CONNECTION", "SSH_TTY"])
def test_over_ssh_it_is_the_terminals(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    terminal = Terminal()
    way = put("täxt\n", terminal.append, {**programs("pbcopy"), variable: "1"})
    assert way == "OSC 52, if the terminal allows it"
    assert terminal == ["\x1b]52;c;" + base64.b64encode("täxt\n".encode()).decode() + "\a"]


def test_tmux_passes_it_on() -> None:
    terminal = Terminal()
    way = put("text", terminal.append, {"SSH_TTY": "1", "TMUX": "/tmp/tmux,1,0"})
    assert way.startswith("OSC 52 through tmux")
    assert terminal[-1] == "\x1bPtmux;\x1b\x1b]52;c;dGV4dA==\a\x1b\\"
    assert terminal[0] == "\x1b]52;c;dGV4dA==\a"


@pytest.mark.parametrize("environ", [{"STY": "1.a"}, {"TERM": "screen-256color"}])
def test_screen_passes_it_on_in_pieces(environ: dict[str, str]) -> None:
    terminal, text = Terminal(), "text " * 1000
    assert put(text, terminal.append, {"SSH_TTY": "1", **environ}) == "OSC 52 through screen"
    pieces = [re.fullmatch(r"\x1bP(.*)\x1b\\", piece, re.DOTALL) for piece in terminal]
    assert len(pieces) > 5
    assert all(piece is not None and len(piece[1]) <= 700 for piece in pieces)
    whole = "".join(piece[1] for piece in pieces if piece)
    assert whole == "\x1b]52;c;" + base64.b64encode(text.encode()).decode() + "\a"


def test_what_the_screen_does_not_show_is_not_copied() -> None:
    terminal = Terminal()
    put("a\x1b[31mb\u202ec\ud800", terminal.append, {"SSH_TTY": "1"})
    assert terminal.payload().decode() == "a␛[31mbc\N{REPLACEMENT CHARACTER}"


def test_no_way_leads_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(
        ClipboardError, match=r"no clipboard tool found; /copy FILE writes it to a file"
    ):
        put("x", None, {"PATH": ""})
    terminal = Terminal()
    with pytest.raises(ClipboardError, match=r"75,000 bytes are too many.*; /copy FILE"):
        put("x" * 75_000, terminal.append, {"PATH": ""})
    assert terminal == []
    put("x" * clipboard.LONGEST, terminal.append, {"PATH": ""})
    assert len(terminal[0]) < 100_010


async def test_within_the_app_it_can_be_pasted_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("WAYLAND_DISPLAY", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    app: App[None] = App()
    async with app.run_test():
        with pytest.raises(ClipboardError):
            copy("text", app)
        assert app.clipboard == "text"


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
        ("sys.exit(3)", "ended with status 3; the prompt is unchanged$"),
        ("path.unlink()", "No such file.*; the prompt is unchanged$"),
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
        ("path.write_bytes(b'\\xff')", "text that is not UTF-8", b"\xff"),
    ],
)
def test_what_was_written_is_never_lost(
    editor: Editor, tmp_path: Path, code: str, says: str, kept: bytes
) -> None:
    with pytest.raises(EditorError, match=f"{says}.*your text is in") as error:
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
    with pytest.raises(EditorError, match="cannot create a file for the editor"):
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
