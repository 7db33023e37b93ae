"""``macspec run`` keeps what was said, and goes on with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import TEXTS, harms

from macspec.cli.main import BROKEN_PIPE
from macspec.store import COMPLETE, CUT_OFF, RAW, STOPPED, Chat, Message, Store, store_path
from macspec.terminal import Asked

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def kept() -> Iterator[Callable[[], list[tuple[Chat, list[Message]]]]]:
    """The conversations on the disk now, the last changed first."""
    stores: list[Store] = []

    def look() -> list[tuple[Chat, list[Message]]]:
        stores.append(Store(store_path()))
        assert stores[-1].trouble is None
        return [(chat, stores[-1].thread(chat.id)) for chat in stores[-1].chats()]

    yield look
    for store in stores:
        store.close()


def texts(thread: list[Message]) -> list[str]:
    return [turn.text for turn in thread]


def test_prompt_and_reply_are_kept(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script("Be", "cause.")
    asked = ["Why?", "--system", "Be brief.", "--temperature", "0.25", "--top-k", "9"]
    assert macspec("run", *asked).status == 0
    ((chat, (prompt, reply)),) = kept()
    assert (chat.title, chat.system) == ("Why?", "Be brief.")
    assert chat.sampling == {"temperature": 0.25, "top_k": 9}
    assert (prompt.text, reply.text, reply.state, reply.reason) == (
        "Why?",
        "Because.",
        COMPLETE,
        "end",
    )
    making = reply.metadata
    assert (making.model, making.draft, making.seed) == (None, None, 7)
    assert (making.rule, making.method, making.depth) == ("block", "auto", "auto")
    assert (making.sampling["temperature"], making.sampling["top_p"]) == (0.25, 1.0)
    assert (making.stats["tokens"], making.stats["acceptance"]) == (2, 1.0)
    assert (making.spans, making.reasoning_spans) == ([(len("Because."), "draft")], [])
    assert making.energy is None  # nobody asked for it


def test_energy_is_kept_where_it_was_measured(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    kept: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MACSPEC_POWER_SOURCE", "off")
    script("Because.")
    assert macspec("run", "Why?", "--stats").status == 0
    ((_, (_, reply)),) = kept()
    assert reply.metadata.energy["decode"]["joules"] is None
    assert "off" in reply.metadata.energy["decode"]["reason"]


def test_reasoning_is_kept_apart_and_not_said_again(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script(("tag", "<think>\n"), ("reasoning", "Hm."), ("tag", "</think>\n\n"), "Because.")
    assert macspec("run", "Why?").out == b"<think>\nHm.</think>\n\nBecause."
    ((_, (_, reply)),) = kept()
    assert (reply.reasoning, reply.text) == ("Hm.", "Because.")
    assert reply.metadata.reasoning_spans == [(3, "draft")]
    session = script("Light.")
    macspec("run", "-c", "Why really?")
    assert session.asked["messages"][1] == {
        "role": "assistant",
        "content": "Because.",
        "reasoning": "Hm.",
    }


def test_headers_are_written_as_tags(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script(
        ("tag", "<|channel|>analysis<|message|>"),
        ("reasoning", "Hm."),
        ("tag", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("answer", "Because."),
    )
    assert macspec("run", "Why?").out == b"<think>\nHm.\n</think>\n\nBecause."
    ((_, (_, reply)),) = kept()
    assert (reply.reasoning, reply.text) == ("Hm.", "Because.")
    script(("tag", "<|channel|>final<|message|>"), "Yes.")
    assert macspec("run", "Why?").out == b"Yes."


def test_the_last_conversation_goes_on(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script("Because.")
    macspec("run", "Why?", "--system", "Be brief.", "--temperature", "0.25")
    session = script("Light.")
    assert macspec("run", "-c", "Why really?", "--top-k", "5").status == 0
    assert session.asked["messages"] == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because."},
        {"role": "user", "content": "Why really?"},
    )
    assert (session.asked["sampling"].temperature, session.asked["sampling"].top_k) == (0.25, 5)
    assert session.asked["on_overflow"] == "drop"
    ((chat, thread),) = kept()
    assert texts(thread) == ["Why?", "Because.", "Why really?", "Light."]
    assert chat.sampling == {"temperature": 0.25, "top_k": 5}


def test_any_conversation_goes_on(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script("x")
    macspec("run", "first")
    macspec("run", "second")
    session = script("y")
    assert macspec("run", "--chat", "1", "third", "--system", "New.").status == 0
    assert [message["content"] for message in session.asked["messages"]] == [
        "New.",
        "first",
        "x",
        "third",
    ]
    assert [texts(thread) for _, thread in kept()] == [
        ["first", "x", "third", "y"],
        ["second", "x"],
    ]
    assert kept()[0][0].system == "New."


def test_models_go_on_too(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
) -> None:
    loaded: list[tuple[str | None, str | None]] = []
    folder = home / "big"
    folder.mkdir()

    def run(*arguments: str) -> None:
        engine = script("x")
        assert macspec("run", "p", *arguments).status == 0
        assert engine.asked
        loaded.append((engine.chosen.target, engine.chosen.draft))

    monkeypatch.chdir(home)
    run("--target", "big", "--draft", "org/small")
    monkeypatch.chdir("/")
    run("-c")
    run("-c", "--target", "org/other")
    run("-c")
    run()
    monkeypatch.setenv("MACSPEC_MODELS_TARGET", "org/mine")
    run("-c")
    assert loaded == [
        ("big", "org/small"),
        (str(folder), "org/small"),
        ("org/other", None),
        ("org/other", None),
        (None, None),
        (None, None),
    ]


def test_a_model_that_an_imported_file_names_is_not_loaded(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
) -> None:
    script("x")
    macspec("run", "p", "--target", "org/theirs")
    file = home / "all.json"
    macspec("history", "export", "--out", str(file))
    monkeypatch.setenv("MACSPEC_HOME", str(home / "elsewhere"))
    macspec("history", "import", str(file))
    engine = script("x")
    assert macspec("run", "-c", "q").status == 0
    assert engine.chosen.target is None
    store = Store(store_path())
    fork = store.fork(store.messages(1)[1].id)
    store.close()
    engine = script("x")
    assert macspec("run", "--chat", str(fork.id), "q").status == 0
    assert engine.chosen.target is None


@pytest.mark.parametrize("how", ["option", "setting"])
def test_nothing_is_kept_if_that_is_the_wish(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    how: str,
) -> None:
    script("x")
    if how == "setting":
        monkeypatch.setenv("MACSPEC_HISTORY_SAVE", "off")
    assert macspec("run", "p", *(["--no-save"] if how == "option" else [])).out == b"x"
    assert not (home / "data" / "chats").exists()


def test_a_conversation_can_go_on_without_being_kept(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script("x")
    macspec("run", "p")
    before = kept()
    session = script("y")
    assert macspec("run", "-c", "q", "--no-save", "--system", "Other.").out == b"y"
    assert len(session.asked["messages"]) == 4
    assert kept() == before


@pytest.mark.parametrize(
    ("error", "status", "state"),
    [
        (KeyboardInterrupt(), 130, STOPPED),
        (Asked(signal.SIGTERM), 143, STOPPED),
        (Asked(signal.SIGHUP), 129, STOPPED),
        (BrokenPipeError(), BROKEN_PIPE, CUT_OFF),
        (RuntimeError("boom"), 2, CUT_OFF),
    ],
)
def test_a_reply_that_does_not_end_is_kept(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    kept: Callable[..., Any],
    error: BaseException,
    status: int,
    state: str,
) -> None:
    script("so ", "far", error, " never")
    assert macspec("run", "p").status == status
    ((_, (_, reply)),) = kept()
    assert (reply.text, reply.state) == ("so far", state)
    assert reply.metadata.stats["tokens"] == 2


def test_a_prompt_that_got_no_answer_is_asked_anew(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script("one")
    macspec("run", "first")
    script(RuntimeError("boom"))
    assert macspec("run", "-c", "second").status == 2
    session = script("two")
    macspec("run", "-c", "third")
    said = [message["content"] for message in session.asked["messages"]]
    assert said == ["first", "one", "third"]
    ((chat, thread),) = kept()
    assert texts(thread) == ["first", "one", "third", "two"]
    assert chat.messages == 6


def test_raw_text_is_kept_and_is_no_conversation(
    macspec: Callable[..., Any], script: Callable[..., Any], kept: Callable[..., Any]
) -> None:
    script(" a time")
    macspec("run", "Once upon", "--raw")
    ((_, (prompt, reply)),) = kept()
    assert (prompt.role, prompt.text, reply.text) == (RAW, "Once upon", " a time")
    assert "no conversation to continue" in macspec("run", "-c", "x").error
    assert "--raw" in macspec("run", "--chat", "1", "x").error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-c"], "no conversation to continue"),
        (["--chat", "7"], "there is no conversation 7; macspec history list"),
        (["--chat", "x"], "chat"),
        (["--chat", "0"], "chat"),
        (["--chat", str(2**63)], "chat"),
        (["-c", "--chat", "7"], "not allowed with"),
        (["-c", "--raw"], "--raw"),
    ],
)
def test_what_cannot_go_on(macspec: Callable[..., Any], arguments: list[str], says: str) -> None:
    outcome = macspec("run", "p", *arguments)
    assert outcome.status == 2
    assert says in outcome.error


def spoil() -> bytes:
    """Put something else where the conversations should be."""
    path = store_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database " * 1000)
    return path.read_bytes()


def test_what_cannot_be_saved_is_said_once_and_answered_all_the_same(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    before = spoil()
    script("answer")
    outcome = macspec("run", "p")
    assert (outcome.status, outcome.out) == (0, b"answer")
    assert len(outcome.err.splitlines()) == 1
    assert "not being saved" in outcome.err
    events = [json.loads(line) for line in macspec("run", "p", "--json").out.splitlines()]
    assert [event["event"] for event in events][:2] == ["notice", "prefilled"]
    assert events[-1]["event"] == "finished"
    assert "not being saved" in macspec("run", "-c", "p").error
    assert macspec("run", "p", "--no-save").err == ""
    assert store_path().read_bytes() == before


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_shown_harmless_and_kept_whole(
    on_terminal: Callable[..., str],
    script: Callable[..., Any],
    kept: Callable[..., Any],
    name: str,
) -> None:
    said = TEXTS[name]
    script(said[: len(said) // 2], said[len(said) // 2 :])
    assert harms(on_terminal("run", "p")) == []
    ((_, (_, reply)),) = kept()
    assert reply.text == said


RUN = [sys.executable, "-m", "macspec", "run", "Once", "--raw", "--temperature", "3", "--seed", "1"]


def as_in_a_shell() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("signum", "status", "state"),
    [
        (signal.SIGTERM, 143, STOPPED),
        pytest.param(signal.SIGHUP, 129, STOPPED, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, STOPPED, marks=pytest.mark.slow),
        (signal.SIGKILL, -9, CUT_OFF),
    ],
)
def test_a_process_that_is_ended_keeps_its_reply(
    kept: Callable[..., Any], home: Path, signum: int, status: int, state: str
) -> None:
    process = subprocess.Popen(
        RUN,
        env={**os.environ, "MACSPEC_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=as_in_a_shell,
    )
    assert process.stdout is not None
    shown = process.stdout.read(40)
    until = time.monotonic() + 60
    while not kept()[0][1][1].text:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signum)
    shown += process.stdout.read()
    assert process.wait(60) == status
    process.stdout.close()
    ((_, (_, reply)),) = kept()
    assert reply.state == state
    text = shown.decode(errors="ignore")
    if state == STOPPED:
        assert reply.text.startswith(text)
    else:
        assert text.startswith(reply.text) or reply.text.startswith(text)
    assert reply.text
