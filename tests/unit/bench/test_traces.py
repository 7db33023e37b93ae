"""Traces: what is recorded is what drafting would have brought."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.assets import prompts
from macspec.bench.recording import forced, guesses, record
from macspec.bench.traces import (
    NOTHING,
    Guess,
    Recorded,
    Trace,
    hopeless,
    load,
    save,
    shipped,
    switching,
)
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
    runs = trace.runs()
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
    assert reply.draft is None
    assert max(guess.run for guess in reply.lookups["ngram"]) > 8


@given(st.lists(st.booleans(), max_size=40))
def test_a_run_ends_at_the_first_token_that_is_wrong(agrees: list[bool]) -> None:
    for at, run in enumerate(Recorded(1, len(agrees), agrees, {}).runs()):
        assert all(agrees[at : at + run])
        assert run == MAX_DEPTH or at + run == len(agrees) or not agrees[at + run]


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    traces = [switching(3, 1, 50), Trace("x", "forced", "y", [Recorded(2, 0, None, {})])]
    save(tmp_path / "a.json", traces)
    assert load(tmp_path / "a.json") == traces


def test_synthetic_traces_are_functions_of_their_seed() -> None:
    assert switching(1) == switching(1) != switching(2)
    assert hopeless(1) == hopeless(1) != hopeless(2)


def test_every_shipped_trace_says_what_it_is() -> None:
    traces = shipped()
    assert {trace.kind for trace in traces} >= {"recorded", "synthetic"}
    assert len({trace.name for trace in traces}) == len(traces)
    assert all(trace.about and trace.replies for trace in traces)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 0}', '{"format": 2, "traces": [{}]}', '{"format": 2, "traces": 3}',
     '{"format": 2, "traces": [{"name": "a", "kind": "b", "about": "", "replies": []}]}',
     '{"format": 2, "traces": [{"name": "a", "kind": "forced", "about": "", "replies": '
     '[{"prompt": 1, "tokens": 3, "draft": "01", "lookups": {}}]}]}'],
)  # fmt: skip
def test_a_file_that_holds_no_traces_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadOptionError, match="holds no traces"):
        load(tmp_path / "a.json")
    with pytest.raises(BadOptionError, match="cannot read"):
        load(tmp_path / "none.json")
    with pytest.raises(BadOptionError, match="cannot write"):
        save(tmp_path / "no" / "folder", [])
