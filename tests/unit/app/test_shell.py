"""What the shell of the app says: hints, titles, the table of keys, the first card."""

from __future__ import annotations

from dataclasses import replace

from macspec.app.actions import ACTIONS, GROUPS, Situation
from macspec.app.chat.introduction import proposal, proposed
from macspec.app.keys import Keys, hints, table
from macspec.app.panel.panelstate import PanelState
from macspec.app.widgets.chrome import cards, fitted, line, right
from macspec.models.catalog import Entry
from macspec.models.machine import GIB


def test_the_table_names_every_action_within_80_columns() -> None:
    lines = list(table(Keys()))
    assert max(map(len, lines)) <= 80
    for action in ACTIONS:
        assert any(f"/{action.slash} " in f"{line} " for line in lines), action.id
    assert [line for line in lines if line in GROUPS] == list(GROUPS)


def test_the_table_has_keys_of_ones_own() -> None:
    (row,) = [line for line in table(Keys({"tint": "f5"})) if "/tint" in line]
    assert row.split()[0] == "F5"


def test_the_hints_name_depth_method_tint_and_switcher() -> None:
    for writing in (True, False):
        named = [what for _, what in hints(Keys(), Situation(), writing)]
        assert {"help", "depth", "method", "tint"} <= set(named)
    assert ("^L", "models") in hints(Keys(), Situation(), True)
    assert hints(Keys(), Situation(), True)[0] == ("?", "help")


def test_while_a_reply_is_written_esc_comes_first() -> None:
    assert hints(Keys(), Situation(busy=True), True)[0] == ("Esc", "stop")
    assert hints(Keys(), Situation(busy=True), False)[0] == ("Esc", "stop")
    assert hints(Keys(), Situation(), False)[0] == ("Esc", "prompt")


def test_hints_are_those_that_fit_and_none_is_broken() -> None:
    shown = fitted((("Esc", "stop"), ("^G", "depth and all that"), ("^T", "tint")), 20)
    assert shown.plain == "Esc stop  ^T tint"
    assert fitted((("Esc", "stop"),), 3).plain == "Esc stop"
    assert fitted((), 20).plain == ""


def test_the_title_gives_way_to_the_pair() -> None:
    assert line("A long title of a chat", "● large + small", 40).plain.endswith("● large + small")
    assert line("A title", "● pair", 20).plain == "A title       ● pair"
    for width in range(1, 60):
        assert line("A long title", "● a pair with a long name", width).cell_length <= width


def test_what_the_engine_does_is_told_in_words() -> None:
    assert right(PanelState()) == "○ no model"
    assert right(PanelState(activity="loading", progress=0.43)) == "◌ loading 43%"
    assert right(PanelState(activity="ready", target="large", draft="small")) == "● large + small"
    assert (
        right(PanelState(activity="reading", target="a\x1bb", progress=0.5)) == "▷ reading 50% a␛b"
    )


def test_the_card_says_what_would_be_downloaded() -> None:
    entry = Entry("mid", "owner/mid", "owner/small", download=5.04, memory_8k=6.5)
    said = " ".join(proposed(entry, 16 * GIB))
    assert "16 GB" in said
    assert "mid: owner/mid with the draft model owner/small" in said
    headed = " ".join(proposed(replace(entry, heads={"mtp": "owner/mid-MTP"}), 16 * GIB))
    assert "mid: owner/mid with the MTP head owner/mid-MTP" in headed
    assert "download 5.0 GB and need 6.5 GB" in said
    assert "To write code" not in " ".join(proposed(entry, 16 * GIB, entry))
    other = Entry("coder", "owner/coder")
    assert proposed(entry, 16 * GIB, other)[-1].endswith(" To write code, coder.")


def test_no_pair_fits_a_tiny_machine() -> None:
    assert "No pair in the catalogue fits" in proposed(None, 2 * GIB)[-1]


def test_this_machine_gets_a_proposal() -> None:
    assert proposal()


def test_the_card_gets_shorter_and_keeps_what_to_do() -> None:
    forms = cards(Keys(), ["built in", "The recommended pair"])
    lengths = [form.cell_length for form in forms]
    assert lengths == sorted(lengths, reverse=True)
    for form in forms:
        assert "The recommended pair" in form.plain
        assert "set up a real pair" in form.plain
