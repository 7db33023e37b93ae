"""Rows by their number, though most were never drawn."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st
from markdowntexts import MARKDOWN, generated

from macspec.app.chat.turns import Turn
from macspec.app.transcript.canvas import RowList
from macspec.app.transcript.rows import Look
from macspec.app.transcript.turn import Note, TurnRows

TEXTS = st.lists(MARKDOWN, min_size=1, max_size=3)


def rows_of(texts: list[str], width: int = 60, tint: bool = False) -> RowList:
    rows = RowList()
    rows.look = Look(rows.look.styles, width, tint)
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        rows.entries += [TurnRows(Turn(number, role, text, reasoning=text[:80])), Note("between")]
    return rows


def shown(rows: RowList) -> list[str]:
    return [found[1].strip.text for y in range(len(rows)) if (found := rows.row(y))]


def whole(rows: RowList) -> list[str]:
    while rows.draw(0, len(rows), inf):
        pass
    return shown(rows)


@generated(TEXTS, st.data())
def test_any_order_of_drawing_gives_the_same_rows(texts: list[str], data: st.DataObject) -> None:
    rows = rows_of(texts)
    for _ in range(3):
        first = data.draw(st.integers(0, max(len(rows) - 1, 0)))
        rows.draw(first, first + data.draw(st.integers(0, 30)), inf)
    assert whole(rows) == whole(rows_of(texts))
    assert len(rows) == len(shown(rows))


@generated(TEXTS, st.data())
def test_what_stands_in_a_row_is_found_while_others_are_drawn(
    texts: list[str], data: st.DataObject
) -> None:
    rows = rows_of(texts)
    y = data.draw(st.integers(0, len(rows) - 1))
    while rows.draw(y, y + 1, inf):
        y = min(y, len(rows) - 1)
    place, found = rows.place(y), rows.row(y)
    assert place is not None
    assert found is not None
    assert rows.find(place) == y
    whole(rows)
    again = rows.row(rows.find(place))
    assert again is not None
    assert again[1] is found[1]


@generated(TEXTS, st.booleans(), st.data())
def test_a_place_is_found_in_another_look(
    texts: list[str], tint: bool, data: st.DataObject
) -> None:
    rows = rows_of(texts)
    whole(rows)
    y = data.draw(st.integers(0, len(rows) - 1))
    place = rows.place(y)
    assert place is not None
    rows.forget(Look(rows.look.styles, 25, tint))
    found = rows.find(place)
    assert 0 <= found < len(rows)
    now = rows.at(found)
    assert now is not None
    assert now[0] is place.entry


def test_the_oldest_rows_are_let_go_and_drawn_again() -> None:
    rows = rows_of(["a\n\nb\n\nc\n\nd"] * 4)
    before = whole(rows)
    rows.trim(3)
    assert sum(part.rows is not None for entry in rows.entries for part in entry.parts) == 3
    assert len(rows) == len(before)
    assert whole(rows) == before


def test_no_entries_have_no_rows() -> None:
    rows = RowList()
    assert len(rows) == 0
    assert rows.row(0) is None
    assert rows.place(0) is None
    assert not rows.draw(0, 10, inf)
