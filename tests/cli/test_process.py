"""The command as a process of its own: signals, pipes, closed streams and hostile surroundings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_run import Outcome

from macspec.cli.main import BROKEN_PIPE
from macspec.terminal import INTERRUPTED

RUN = [sys.executable, "-m", "macspec", "run"]
HELLO = [*RUN, "Hello", "--max-tokens", "4", "--seed", "1"]

# Long and unlikely to end by itself: hot sampling of text that is no dialogue.
LONG = [*RUN, "Once", "--raw", "--temperature", "3", "--seed", "1"]


def listening_to_ctrl_c() -> None:
    """A test run in the background ignores Ctrl-C and would hand that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finished(command: list[str], **settings: Any) -> subprocess.CompletedProcess[bytes]:
    settings = {"stdin": subprocess.DEVNULL, **settings}
    return subprocess.run(
        command,
        capture_output=True,
        check=False,
        timeout=120,
        **settings,
    )


@pytest.mark.parametrize("module", ["mlx.core", "mlx_lm", "transformers", "macspec.models.pair"])
def test_ctrl_c_while_modules_are_imported_is_quiet(module: str) -> None:
    code = f"""
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                sum(range(100))
            except KeyboardInterrupt:
                # What extension modules make of it while they initialise.
                raise ImportError("initialisation failed") from None

sys.meta_path.insert(0, Interrupting())
from macspec.cli.main import main
sys.exit(main(["run", "Hello"]))
"""
    done = finished([sys.executable, "-c", code], preexec_fn=listening_to_ctrl_c)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, b"", b"")


def test_ctrl_c_in_a_reply_keeps_the_text_and_prints_the_statistics() -> None:
    process = subprocess.Popen(
        [*LONG, "--json", "--stats"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=listening_to_ctrl_c,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if sum(b'"text"' in line for line in lines) == 3:
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)
    events = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert process.returncode == INTERRUPTED
    assert events[-1]["reason"] == "interrupted"
    assert events[-1]["text"].startswith(
        "".join(event["delta"] for event in events if event["event"] == "text")
    )
    assert b"ended by an interrupt" in errors
    assert b"Traceback" not in errors


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*HELLO, "--json"], stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="not on a Mac: needs /dev/full")
@pytest.mark.parametrize("command", [HELLO, [sys.executable, "-m", "macspec", "--version"]])
def test_a_full_disk_is_one_line(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    lines = [line for line in done.stderr.decode().splitlines() if "built-in pair" not in line]
    assert lines == ["macspec: error: cannot write the output: No space left on device"]


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_stream(closed: int, home: Path) -> None:
    """In a home where nothing has run, so that there is a notice to be written."""
    done = finished(["/bin/sh", "-c", f'exec "$@" {closed}>&-', "sh", *HELLO])
    if closed == 1:
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == b"macspec: error: standard output is closed"
    else:
        assert done.returncode == 0
        assert done.stdout
        assert (done.stderr == b"") == (closed == 2)


@pytest.mark.parametrize(
    "home", ["/nonexistent", pytest.param("/dev/null", marks=pytest.mark.slow)]
)
def test_a_home_that_cannot_be_used(home: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = finished(HELLO, env={**kept, "HOME": home, "XDG_CACHE_HOME": f"{home}/cache"})
    assert done.returncode == 0
    assert done.stdout
    assert b"Error" not in done.stderr


@pytest.mark.parametrize("locale", ["C", pytest.param("POSIX", marks=pytest.mark.slow)])
def test_any_locale_speaks_utf8(locale: str, macspec: Callable[..., Outcome]) -> None:
    plain = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    asked = ["Où est le café ?", "--temperature", "0", "--max-tokens", "8"]
    done = finished([*RUN, *asked], env={**os.environ, **plain})
    assert done.returncode == 0
    assert done.stdout == macspec("run", *asked).out != b""


def missing(folder: Path) -> Path:
    return folder / "missing"


def in_the_way(folder: Path) -> Path:
    (folder / "mlx").touch()
    return folder


def unwritable(folder: Path) -> Path:
    if os.geteuid() == 0:
        return Path("/proc") if os.path.exists("/proc/self") else missing(folder)
    folder.chmod(0o500)
    return folder


@pytest.mark.parametrize(
    "make",
    [missing, *(pytest.param(it, marks=pytest.mark.slow) for it in (in_the_way, unwritable))],
)
def test_a_temporary_folder_that_mlx_cannot_compile_in(make: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(make(tmp_path))}
    check = [sys.executable, "-m", "macspec", "check", "--prompts", "1", "--max-tokens", "4"]
    done = finished(check, env=environment)
    assert done.returncode == 0, done.stderr
    report = done.stdout.decode()
    assert "mx.compile  " in report
    if "Metal" not in report:
        assert "mx.compile  off: " in report
    assert "passed: 4 of 4" in report


def test_the_help_of_a_closed_pipe_is_quiet() -> None:
    done = finished(["/bin/sh", "-c", '"$@" | true', "sh", sys.executable, "-m", "macspec", "-h"])
    assert (done.returncode, done.stderr) == (0, b"")
