"""Traces: what is recorded is what drafting would have brought."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.bench.traces import (
    hopeless,
    load,
    runs,
    shipped,
    switching,
)
from macspec.choices import MAX_DEPTH
from macspec.errors import BadOptionError


@given(st.lists(st.booleans(), max_size=40))
def test_a_run_ends_at_the_first_token_that_is_wrong(agrees: list[bool]) -> None:
    for at, run in enumerate(runs(agrees)):
        assert all(agrees[at : at + run])
        assert run == MAX_DEPTH or at + run == len(agrees) or not agrees[at + run]


def test_synthetic_traces_are_functions_of_their_seed() -> None:
    assert switching(1) == switching(1) != switching(2)
    assert hopeless(1) == hopeless(1) != hopeless(2)


def test_every_shipped_trace_says_what_it_is() -> None:
    traces = shipped()
    assert {trace.kind for trace in traces} >= {"recorded", "synthetic"}
    assert len({trace.name for trace in traces}) == len(traces)
    assert all(trace.about and trace.replies for trace in traces)
    both = [trace for trace in traces if len(trace.models) > 1]
    assert {name for trace in both for name in trace.models} == {"draft", "eagle"}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 0}', '{"format": 3, "traces": [{}]}', '{"format": 3, "traces": 3}',
     '{"format": 3, "traces": [{"name": "a", "kind": "b", "about": "", "replies": []}]}',
     '{"format": 3, "traces": [{"name": "a", "kind": "forced", "about": "", "replies": '
     '[{"prompt": 1, "tokens": 3, "models": {"draft": "01"}, "lookups": {}}]}]}'],
)  # fmt: skip
def test_a_file_that_holds_no_traces_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadOptionError, match="holds no traces"):
        load(tmp_path / "a.json")
    with pytest.raises(BadOptionError, match="cannot read"):
        load(tmp_path / "none.json")
