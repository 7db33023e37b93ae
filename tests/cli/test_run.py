"""``macspec run``: what goes where, whatever the reply is."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macspec import terminal
from macspec.assets import pocket
from macspec.cli.main import BROKEN_PIPE
from macspec.cli.saving import Conversation
from macspec.events import Event, Finished, Text
from macspec.models.pair import BUILT_IN
from macspec.terminal import INTERRUPTED
from macspec.worker.registry import Registry

STATISTICS = [
    "prompt_tokens",
    "cached_tokens",
    "tokens",
    "passes",
    "drafted",
    "accepted",
    "acceptance",
    "acceptance_by_position",
    "tokens_per_pass",
    "ttft_s",
    "itl_ms_median",
    "itl_ms_p95",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "predicted_speedup",
    "measured_speedup",
    "seconds",
    "dropped_messages",
]


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_piped_text_is_exact(macspec: Callable[..., Any], script: Callable[..., Any]) -> None:
    script("caf", "é \x1b[1m", "\r\n", "\u202e中")
    outcome = macspec("run", "Hello")
    assert outcome.status == 0
    assert outcome.out == "café \x1b[1m\r\n\u202e中".encode()
    assert outcome.err == ""


def test_a_terminal_gets_neutral_text_and_a_last_newline(
    on_terminal: Callable[..., str], script: Callable[..., Any]
) -> None:
    script("\x1b", "[31mred\x9b", "0m")
    assert on_terminal("run", "Hello") == "␛[31mred\N{REPLACEMENT CHARACTER}0m\n"


def test_a_terminal_gets_no_newline_too_many(
    on_terminal: Callable[..., str], script: Callable[..., Any]
) -> None:
    script("line\n", "")
    assert on_terminal("run", "Hello") == "line\n"


def test_how_to_get_a_real_pair_is_said_until_it_has_run_once(
    macspec: Callable[..., Any], script: Callable[..., Any], home: Path
) -> None:
    script("a", notices=[f"{BUILT_IN}...", "another notice"])
    first, second = (macspec("run", "Hello").err for _ in range(2))
    assert first == f"macspec: {BUILT_IN}...\nmacspec: another notice\n"
    assert second == "macspec: another notice\n"


def test_json_lines_are_ascii_whatever_the_text(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    said = "\x1b[2J\x7f\x9b\u202e\ud83d é"
    script(said)
    lines = macspec("run", "Hello", "--json").out.splitlines()
    assert all(0x20 <= byte < 0x7F for line in lines for byte in line)
    assert json.loads(lines[-1])["text"] == said


def test_text_survives_half_a_surrogate_pair(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script("a\ud83db")
    assert macspec("run", "Hello").out == "a\N{REPLACEMENT CHARACTER}b".encode()


def test_notices_go_to_standard_error(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script("text", notices=["take \x1b[2Jnote"])
    outcome = macspec("run", "Hello")
    assert (outcome.out, outcome.err) == (b"text", "macspec: take ␛[2Jnote\n")


def test_with_json_notices_are_events(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script("text", notices=["take note"])
    outcome = macspec("run", "Hello", "--json")
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert events[0] == {"event": "notice", "message": "take note"}
    assert [event["event"] for event in events[1:]] == ["prefilled", "text", "round", "finished"]
    assert outcome.err == ""


def test_the_last_json_line_has_every_statistic(macspec: Callable[..., Any]) -> None:
    outcome = macspec("run", "Hello", "--json", "--max-tokens", "8", "--accept", "keyed")
    events = [json.loads(line) for line in outcome.out.splitlines()]
    last = events[-1]
    described = ["text", "token_ids", "reason", "rule", "method", "depth", "seed"]
    assert sorted(last) == sorted(["event", "energy", "accept_rule", *described, *STATISTICS])
    assert last["event"] == "finished"
    assert last["rule"] == last["accept_rule"] == "keyed"
    assert last["tokens"] == len(last["token_ids"]) <= 8
    texts = [event["delta"] for event in events if event["event"] == "text"]
    assert "".join(texts) == last["text"]
    rounds = [event for event in events if event["event"] == "round"]
    assert sum(event["accepted"] for event in rounds) == last["accepted"]
    assert sum(len(event["tokens"]) for event in rounds) == last["tokens"]


def test_the_statistics_are_a_table_on_standard_error(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MACSPEC_POWER_SOURCE", "off")
    script("a", "b", "c")
    outcome = macspec("run", "Hello", "--stats")
    assert outcome.out == b"abc"
    assert outcome.err.splitlines() == [
        "",
        "acceptance           1.000      3 of 3 drafted",
        "  by position        1.00",
        "tokens per pass      1.00       3 passes",
        "time to first token  0.500 s",
        "inter-token latency  500.0 ms   median",
        "                     500.0 ms   95th percentile",
        "decode               2.0 tok/s",
        "speed-up over plain  -",
        "prefill              6.0 tok/s  0 of 3 prompt tokens were cached",
        "tokens               3          ended by the model",
        "seconds              1.500      device idle 0.000",
        "energy               -          switched off in the settings (power.source)",
        "acceptance rule      block",
        "method               auto       depth auto",
        "seed                 7",
    ]


def test_a_reply_without_a_token_has_statistics_too(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script()
    table = macspec("run", "Hello", "--stats").err
    assert "acceptance           -\n" in table
    assert "decode               -\n" in table


def test_ctrl_c_while_text_is_written_lets_the_round_end(
    macspec: Callable[..., Any], script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = script("so ", "far")
    events = engine._events()
    following: list[Event] = []

    def stop() -> Finished:
        following.append(next(events))
        events.close()
        finished: Finished = engine.finished
        return finished

    def take(conversation: Conversation, event: Event) -> None:
        if isinstance(event, Text):
            raise KeyboardInterrupt

    monkeypatch.setattr(engine, "reply", lambda request: events)
    monkeypatch.setattr(engine, "stop", stop)
    monkeypatch.setattr(Conversation, "take", take)
    assert macspec("run", "Hello").status == INTERRUPTED
    assert [event.delta for event in following if isinstance(event, Text)] == ["far"]


@pytest.mark.parametrize("options", [["--stats"], ["--stats", "--json"]])
def test_ctrl_c_keeps_text_and_statistics(
    macspec: Callable[..., Any], script: Callable[..., Any], options: list[str]
) -> None:
    script("so ", "far", KeyboardInterrupt(), " never")
    outcome = macspec("run", "Hello", *options)
    assert outcome.status == INTERRUPTED
    assert "ended by an interrupt" in outcome.err
    assert "Traceback" not in outcome.err
    if "--json" in options:
        last = json.loads(outcome.out.splitlines()[-1])
        assert (last["event"], last["reason"], last["text"]) == (
            "finished",
            "interrupted",
            "so far",
        )
    else:
        assert outcome.out == b"so far"


def test_a_reader_that_went_away_is_no_error(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script("text", BrokenPipeError())
    outcome = macspec("run", "Hello")
    assert (outcome.status, outcome.err) == (BROKEN_PIPE, "")


@pytest.mark.parametrize(
    ("argument", "data", "expected"),
    [
        ("asked", b"", "asked"),
        (None, b"piped\n", "piped"),
        (None, b"two\r\nlines\r\n", "two\r\nlines"),
        ("asked", "gepipet é\n".encode(), "asked\n\ngepipet é"),
        (" kept ", b"\nkept too\n\n", " kept \n\n\nkept too\n"),
        ("caf\udcc3\udca9", b"", "café"),
    ],
)
def test_the_prompt_is_argument_and_standard_input(
    macspec: Callable[..., Any],
    script: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    argument: str | None,
    data: bytes,
    expected: str,
) -> None:
    session = script("x")
    piped(monkeypatch, data)
    macspec("run", *([] if argument is None else [argument]))
    assert session.asked["messages"] == ({"role": "user", "content": expected},)


def test_options_reach_the_session(macspec: Callable[..., Any], script: Callable[..., Any]) -> None:
    session = script("x")
    text = "--system s --think off --stop a --stop b --max-tokens 5 --seed 9 --top-k 3"
    macspec("run", "p", "--temperature", "0.5", *text.split())
    asked = session.asked
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert asked["stop"] == ("a", "b")
    assert asked["think"] is False
    assert asked["max_tokens"] == 5
    assert asked["on_overflow"] == "refuse"
    assert (asked["sampling"].seed, asked["sampling"].top_k) == (9, 3)
    assert asked["sampling"].temperature == 0.5


def test_raw_passes_the_text_on(macspec: Callable[..., Any], script: Callable[..., Any]) -> None:
    session = script("x")
    macspec("run", "Once upon", "--raw")
    assert (session.asked["messages"], session.asked["raw"]) == ("Once upon", True)


def test_a_seed_repeats_its_text_with_any_drafter(macspec: Callable[..., Any]) -> None:
    asked = ["run", "I want a pizza.", "--rule", "keyed", "--seed", "5", "--max-tokens", "12"]
    texts = {
        macspec(*asked, "--method", method, "--depth", depth).out
        for method, depth in [("off", "0"), ("draft", "auto"), ("draft", "7"), ("ngram", "3")]
    }
    assert len(texts) == 1
    assert texts != {b""}


def test_silence_on_standard_input_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    with open(reader) as silent, open(writer, "w") as other_end:
        monkeypatch.setattr(sys, "stdin", silent)
        monkeypatch.setattr(terminal, "PATIENCE", 0)
        terminal._say_if_silent()
        assert "reading standard input" in capsys.readouterr().err
        other_end.write("x")
        other_end.flush()
        terminal._say_if_silent()
        assert capsys.readouterr().err == ""


def test_why_the_draft_model_is_off_is_told_once(
    macspec: Callable[..., Any], tmp_path: Path
) -> None:
    target, draft, _ = pocket()
    other = shutil.copytree(draft, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"] = {"type": "Lowercase"}
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    done = macspec("run", "Hi", "--target", str(target), "--draft", str(other), "--max-tokens", "2")
    assert done.status == 0
    assert done.err.count("is off") == 1


def test_while_it_runs_other_engines_see_what_it_holds(
    macspec: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, take = [], Conversation.take

    def look(conversation: Conversation, event: Event) -> None:
        seen.extend(Registry().others())
        take(conversation, event)

    monkeypatch.setattr(Conversation, "take", look)
    assert macspec("run", "Hello", "--max-tokens", "2").status == 0
    assert {(running.pid, running.pair) for running in seen} == {(os.getpid(), "built-in")}
    assert Registry().others() == []


def test_what_does_not_fit_beside_another_engine_is_refused(
    macspec: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("macspec.models.memory", "macspec.worker.engine"):
        monkeypatch.setattr(f"{module}.device_limit", lambda: 2**30)
    other = Registry()
    assert other.enter("some/model", 2**30 - 2**20, 2**30) == []
    outcome = macspec("run", "Hello")
    other.leave()
    assert outcome.status == 2
    assert f"process {os.getpid()} holds 1.0 GB for some/model" in outcome.error
