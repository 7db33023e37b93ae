"""Recording traces: what is recorded is what drafting would have brought."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import record as recording
from record import forced, guesses, record, save

from macspec.assets import prompts
from macspec.bench.published import published
from macspec.bench.simulate import simulate
from macspec.bench.traces import NOTHING, Guess, Recorded, Trace, load, switching
from macspec.choices import MAX_DEPTH
from macspec.drafters import NGram
from macspec.errors import BadOptionError
from macspec.models import Pair
from macspec.sampling import Sampling
from macspec.session import Session


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_draft_model_gets_right_what_the_trace_says(pocket: Pair, temperature: float) -> None:
    chat = prompts()[5]
    (trace,) = record(pocket, [chat], Sampling(temperature=temperature), max_tokens=24)
    runs = trace.models["draft"]
    session = Session(pocket, method="draft", depth=3, rule="keyed")
    sampling = Sampling(temperature=temperature, seed=1)
    at = 0
    for event in session.reply(list(chat), sampling, max_tokens=24):
        if type(event).__name__ == "Round":
            if at + len(event.tokens) < trace.tokens:
                assert event.accepted == min(runs[at], event.drafted)
            at += len(event.tokens)
    assert at == trace.tokens


def test_a_lookup_gets_right_what_the_trace_says() -> None:
    said = guesses([1, 2, 3, 9], [1, 2, 3, 9, 7], [NGram()])["ngram"]
    assert said[0] == NOTHING
    # After 9 1 2: the last two tokens were seen, and 3 9 followed; then the text goes on with 7.
    assert said[2] == Guess(MAX_DEPTH, 1, 2)
    assert len(said) == 5


def test_a_forced_text_has_lookups_only(pocket: Pair) -> None:
    text = "the quick brown fox jumps over the lazy dog. " * 3
    reply = forced(pocket, text, text)
    assert reply.models == {}
    assert max(guess.run for guess in reply.lookups["ngram"]) > 8


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    traces = [switching(3, 1, 50), Trace("x", "forced", "y", [Recorded(2, 0, {}, {})])]
    save(tmp_path / "a.json", traces)
    assert load(tmp_path / "a.json") == traces
    with pytest.raises(BadOptionError, match="cannot write"):
        save(tmp_path / "no" / "folder", [])


def test_recorded_traces_can_be_played_back(tmp_path: Path) -> None:
    out = tmp_path / "traces.json"
    small = ("--prompts", "2", "--turns", "2", "--max-tokens", "12")
    assert recording.main(["--out", str(out), *small]) == 0
    curve = next(it for it in published() if it.name == "m4-pro-4bit")
    results = list(simulate(curve, load(out)))
    assert [it.trace.name for it in results] == ["chat-0", "chat-0.7", "chat-1"]
    assert all(0 < it.cold.tokens <= 48 for it in results)
    assert all(it.trace.drafters == ["draft", "eagle", "ngram", "suffix"] for it in results)


def test_a_forced_text(tmp_path: Path) -> None:
    text, out = tmp_path / "a.py", tmp_path / "traces.json"
    text.write_text("def f(a):\n    return a\n" * 5)
    assert recording.main(["--out", str(out), "--forced", str(text), str(text)]) == 0
    (trace,) = json.loads(out.read_text())["traces"]
    assert trace["kind"] == "forced"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "--out"), (["--out", "x", "--forced", "no", "file"], "cannot read no")],
)
def test_errors_are_one_line(
    capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert recording.main(arguments) == 2
    assert words in capfd.readouterr().err
