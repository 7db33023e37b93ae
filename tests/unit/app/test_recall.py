"""Walking through earlier prompts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from macspec.app.message import Recall


def test_there_and_back() -> None:
    recall = Recall(["first", "second", "second", " "])
    assert recall.newer("unsent") is None
    assert recall.older("unsent") == "second"
    assert recall.walking
    assert recall.written("second") == "unsent"
    assert recall.older("second") == "first"
    assert recall.older("first") is None
    assert recall.newer("first") == "second"
    assert recall.newer("second") == "unsent"
    assert not recall.walking


def test_changes_stay_until_something_is_sent() -> None:
    recall = Recall(["first", "second"])
    recall.older("unsent")
    assert recall.older("second, changed") == "first"
    assert recall.unsent("first!") == ["unsent", "first!", "second, changed"]
    assert recall.newer("first!") == "second, changed"
    recall.add("second, changed")
    assert recall.older("") == "second, changed"
    assert recall.older("second, changed") == "second"
    assert recall.unsent("second") == []


def test_the_same_twice_is_one() -> None:
    recall = Recall()
    recall.add("again")
    recall.add("again")
    assert recall.older("") == "again"
    assert recall.older("again") is None


@given(
    st.lists(st.sampled_from("abc"), max_size=4), st.lists(st.sampled_from(["older", "newer", "x"]))
)
def test_what_is_being_written_is_never_lost(sent: list[str], steps: list[str]) -> None:
    recall, text = Recall(sent), "unsent"
    for step in steps:
        if step == "x":
            text += step
        else:
            text = getattr(recall, step)(text) or text
        assert recall.written(text).startswith("unsent")
        assert any(each.startswith("unsent") for each in recall.unsent(text))
