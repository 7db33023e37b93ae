"""Folded pastes: a short name in the prompt, whole everywhere else."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from macspec.app.message import UNWIELDY, Pastes, block, is_long

LONG = "\n".join(f"line {number}" for number in range(42))


def test_only_long_pastes_fold() -> None:
    assert not is_long("x" * 1000)
    assert is_long("x" * 1001)
    assert not is_long("\n".join("x" * 8))
    assert not is_long("\n".join("x" * 8) + "\n")
    assert is_long("\n".join("x" * 9))


def test_a_name_says_what_it_stands_for() -> None:
    pastes = Pastes()
    assert pastes.fold(LONG) == "[pasted 42 lines #1]"
    assert pastes.fold("x" * 12_345) == "[pasted 12,345 characters #2]"
    assert pastes.fold(LONG) == "[pasted 42 lines #1]"
    assert pastes.fold(f"{LONG}\n") == "[pasted 42 lines #3]"


def test_it_is_whole_again_and_can_be_folded_again() -> None:
    pastes = Pastes()
    shown = f"before {pastes.fold(LONG)} after {pastes.fold(LONG)}"
    whole = pastes.expand(shown)
    assert whole == f"before {LONG} after {LONG}"
    assert pastes.folded(whole) == shown
    assert pastes.folded(whole.replace("line 3\n", "")) == whole.replace("line 3\n", "")


def test_places_are_those_of_known_names() -> None:
    pastes = Pastes()
    name = pastes.fold(LONG)
    line = f"ab {name}{name} [pasted 42 lines #9]"
    assert [line[start:end] for start, end in pastes.places(line)] == [name, name]


def test_a_text_with_a_name_in_it_stays_what_it_is() -> None:
    pastes = Pastes()
    name = pastes.fold(LONG)
    text = f"it showed {name} there, and this: {LONG}"
    shown = pastes.folded(text)
    assert shown == f"it showed {name} there, and this: [pasted 42 lines #2]"
    assert pastes.expand(shown) == text


def test_a_paste_within_a_paste_is_not_unfolded() -> None:
    pastes = Pastes()
    name = pastes.fold(LONG)
    outer = pastes.fold(f"{LONG}\n{name}")
    assert pastes.expand(outer) == f"{LONG}\n{name}"


def test_files_of_an_earlier_message_fold(tmp_path: Path) -> None:
    path = tmp_path / "notes [1].md"
    path.write_text(LONG + "\n```\nin a fence\n```\n")
    text = f"what is this?\n\n{block(path, 'notes [1].md')}"
    pastes = Pastes()
    shown = pastes.folded(text)
    assert shown == "what is this?\n\n[notes 1.md 48 lines #1]"
    assert pastes.expand(shown) == text


def test_what_is_too_long_for_a_few_lines_folds_as_a_whole() -> None:
    pastes = Pastes()
    text = "a b " * UNWIELDY
    assert pastes.folded(text) == "[pasted 80,000 characters #1]"
    assert pastes.expand(pastes.folded(text)) == text


PIECES = st.sampled_from(
    [LONG, "x" * 1500, "[pasted 42 lines #1]", "[pasted 42 lines #2]", "#1]", "[", " ", "a\n", "x"]
)


@given(
    st.lists(st.lists(PIECES, min_size=1).map("".join), max_size=4),
    st.lists(PIECES).map("".join),
)
def test_folding_never_changes_a_text(pasted: list[str], text: str) -> None:
    pastes = Pastes()
    for each in pasted:
        pastes.fold(each)
    assert pastes.expand(pastes.folded(text)) == text
