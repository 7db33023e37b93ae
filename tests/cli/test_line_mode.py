"""Line mode through pipes: a conversation without a terminal, with the real engine or a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from macspec.config.paths import state_folder
from macspec.store import COMPLETE, CUT_OFF, GenerationMetadata, Store, store_path

CHAT = [sys.executable, "-m", "macspec", "chat"]

SCRIPT = Path(__file__).parents[1] / "unit" / "worker" / "scripted_engine.py"

SCRIPTED = f"""
import sys
from macspec.cli.main import main
from macspec.worker import ProcessEngine

ProcessEngine.__init__.__kwdefaults__["program"] = ({sys.executable!r}, {str(SCRIPT)!r})
sys.exit(main(["chat", *sys.argv[1:]]))
"""
"""A chat whose engine has no model."""

# Keyed and with a seed it is one text, and a long one: another draw might end at once.
LONG = ["--temperature", "3", "--accept", "keyed", "--seed", "1", "--max-tokens", "1900"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(home: Path):
    opened = Store(store_path())
    yield opened
    opened.close()


def chat(
    lines: str | bytes, *options: str, command: Sequence[str] = CHAT, **settings: Any
) -> subprocess.CompletedProcess[str]:
    data = lines if isinstance(lines, bytes) else lines.encode()
    done = subprocess.run(
        [*command, *options],
        input=data,
        capture_output=True,
        check=False,
        timeout=120,
        **settings,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


scripted = partial(chat, command=(sys.executable, "-c", SCRIPTED))


def test_each_line_is_a_message_or_a_command(store, tmp_path):
    (tmp_path / "notes.txt").write_text("Seven apples.\n")
    done = chat(
        "What is 3 plus 4?\n"
        "\n"
        "/depth 4\n"
        "/method eagle\n"
        "Say it \\\nagain, with @notes.txt.\n"
        "/rename Sums\n"
        "/regenerate\n"
        "/older\n"
        "/copy reply.txt\n"
        "/export talk.json\n"
        "/stats\n",
        *("--temperature", "0", "--max-tokens", "16"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 plus 4 is 7.\n\n")
    assert "depth 4 from the next round" in done.stderr
    assert "method: eagle\ndepth: 4\n" in done.stdout
    assert "rule block, temperature 0.00" in done.stdout
    assert "accepted: " in done.stdout
    (chat_now,) = store.chats()
    assert chat_now.title == "Sums"
    thread = store.thread(chat_now.id)
    assert [turn.role for turn in thread] == ["user", "assistant"] * 2
    assert thread[2].text.startswith("Say it \nagain, with `notes.txt`.")
    assert "Seven apples." in thread[2].text
    assert thread[1].metadata.depth == "auto"
    assert thread[3].metadata.depth == 4
    assert thread[3].metadata.method == "eagle"
    assert len(store.siblings(thread[3].id)) == 2
    assert (tmp_path / "reply.txt").read_text().strip() == thread[3].text.strip()
    assert json.loads((tmp_path / "talk.json").read_text())["chats"][0]["title"] == "Sums"


def test_it_goes_on_where_it_was_left_and_finds_old_ones(store):
    first = scripted("My name is Anna.\n", "--temperature", "0")
    assert first.returncode == 0, first.stderr
    second = scripted("/new\nWhat is 2 plus 2?\n/search Anna\n/chats 1\n/chats\n/delete\n/undo\n")
    assert second.returncode == 0, second.stderr
    assert len(store.chats()) == 2
    assert "you: My name is Anna" in second.stdout or "My name is Anna. (" in second.stdout
    assert "You:\nMy name is Anna.\n" in second.stdout
    assert "conversation 1: My name is Anna., with 2 turns" in second.stderr
    assert "deleted My name is Anna." in second.stderr


def test_nothing_on_standard_input_ends_at_once():
    done = scripted("")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    "redirection",
    [
        "</dev/null | cat",
        "<&- >&-",
        pytest.param("</dev/null", marks=pytest.mark.slow),
        pytest.param("<&-", marks=pytest.mark.slow),
    ],
)
def test_bare_macspec_without_a_terminal_says_so_and_ends(redirection):
    program = " ".join([sys.executable, "-m", "macspec", redirection])
    done = subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert "using line mode (macspec chat --plain)" in done.stderr or "closed" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_what_fails_is_said_and_is_the_exit_status(tmp_path):
    done = scripted(
        "/nope\n/tint\n/depth deep\n/regenerate\n/copy x\n/models a b c\n/edit\n/sampling top_p 2\n"
        "/search\n/rename\n/chats 99\n/older\n/code\n /etc/hosts is text\n",
        "--max-tokens",
        "3",
        cwd=tmp_path,
    )
    assert done.returncode == 2
    for said in (
        "unknown command /nope",
        "/tint needs the screen",
        "depth is deep; it must be",
        "this conversation is empty",
        "name a pair",
        "top_p must be a number above 0 and at most 1",
        "there is no conversation 99",
        "the reply reached --max-tokens",
    ):
        assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()


def test_bytes_that_are_no_text_are_refused_and_the_rest_goes_on(store):
    done = scripted(b"caf\xe9\n/temperature 0\nHello\n")
    assert done.returncode == 2
    assert "is not UTF-8: byte 0xe9 at position 3" in done.stderr
    assert done.stdout.strip()
    assert len(store.thread(1)) == 2


def test_a_model_that_is_not_there(tmp_path):
    done = chat("Hello\n/chats\n", "--target", str(tmp_path), env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 2
    assert "no model is loaded" in done.stderr
    assert "no weights" in done.stderr or "config.json" in done.stderr


def test_where_the_pair_of_a_conversation_is_gone_the_usual_one_answers(store, tmp_path):
    begun = store.new_chat()
    prompt = store.add(begun.id, None, "Hello")
    store.reply(begun.id, prompt.id, GenerationMetadata(model=str(tmp_path / "gone"))).finish("end")
    done = chat("Hello again\n", "--max-tokens", "3")
    assert done.returncode == 0, done.stderr
    assert "gone" in done.stderr
    assert [turn.role for turn in store.thread(begun.id)] == ["user", "assistant"] * 2


def test_no_save_keeps_nothing(store):
    done = scripted("Hello\n/chats\n", "--no-save")
    assert done.returncode == 0
    assert "Hello" in done.stdout
    assert not store.chats()


def test_what_was_typed_elsewhere_and_not_sent_stays(store):
    begun = store.new_chat()
    store.set_unsent(begun.id, "half a thought")
    assert scripted("Hello\n", "--chat", str(begun.id)).returncode == 0
    assert store.chat(begun.id).unsent == "half a thought"


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_in_mid_reply_keeps_what_came(store, number):
    running = subprocess.Popen(
        [*CHAT, "--plain", *LONG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"Tell me something\n")
    running.stdin.flush()
    came = running.stdout.read1()
    running.send_signal(number)
    rest, err = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert b"Traceback" not in err
    last = store.thread(store.chats()[0].id)[-1]
    assert last.state == CUT_OFF
    written = last.text.encode("utf-8", "replace").decode(errors="replace").strip()
    assert written.startswith((came + rest).decode(errors="replace").strip())


def test_a_reader_that_does_not_read_holds_up_nothing(store):
    reading, writing = os.pipe()
    filler = b"." * (room() - 64)
    os.write(writing, filler)
    running = subprocess.Popen(
        [*CHAT, "--plain", "--temperature", "100", "--accept", "keyed", "--seed", "1"],
        stdin=subprocess.PIPE,
        stdout=writing,
    )
    assert running.stdin is not None
    running.stdin.write(b"Tell me something\n")
    running.stdin.flush()
    deadline = time.monotonic() + 60
    while not store.chats() or len(store.thread(store.chats()[0].id)[-1].text) < 64:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 128 + signal.SIGTERM
    os.close(writing)
    with open(reading, "rb") as pipe:
        shown = pipe.read()[len(filler) :].decode(errors="replace").strip()
    last = store.thread(store.chats()[0].id)[-1]
    written = last.text.encode("utf-8", "replace").decode(errors="replace")
    assert last.state in (CUT_OFF, COMPLETE)
    assert written.strip().startswith(shown)
    assert len(written) > len(shown)


def room() -> int:
    """Bytes that a pipe takes before somebody reads."""
    other, same = os.pipe()
    os.set_blocking(same, False)
    size = 0
    with suppress(BlockingIOError):
        while True:
            size += os.write(same, b"." * 512)
    os.close(other)
    os.close(same)
    return size


def test_a_reader_that_goes_away(store):
    running = subprocess.Popen(
        [*CHAT, "--plain", *LONG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"Tell me something\n")
    running.stdin.close()
    assert running.stdout.read(1)
    running.stdout.close()
    assert running.stderr is not None
    assert b"Traceback" not in running.stderr.read()
    assert running.wait(60) == 141
    assert store.thread(1)[-1].text


def test_the_lost_engine_costs_no_text(store, macspec: Callable[..., Any]):
    running = subprocess.Popen(
        [*CHAT, "--plain", *LONG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"Tell me something\n")
    running.stdin.flush()
    assert running.stdout.read1()
    (entry,) = (state_folder() / "engines").glob("*.json")
    os.kill(json.loads(entry.read_text())["pid"], signal.SIGKILL)
    running.stdin.write(b"/temperature 0\nHello\n")
    running.stdin.close()
    out, err = running.stdout.read(), running.stderr.read() if running.stderr else b""
    assert running.wait(60) == 2
    assert b"the engine stopped" in err
    assert b"the reply was cut off; what was generated is kept" in err
    assert out.strip()
    states = [turn.state for turn in store.thread(1) if turn.role == "assistant"]
    assert states == [CUT_OFF, "complete"]
