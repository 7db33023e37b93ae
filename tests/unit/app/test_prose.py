"""Markdown as rows: nothing is hidden, nothing is obeyed, nothing is too wide."""

from __future__ import annotations

import re

import pytest
from hostile import TEXTS, harms
from hypothesis import strategies as st
from markdowntexts import MARKDOWN, cut, generated
from rich.style import Style

from macspec.app.chat.turns import TextPiece, Turn
from macspec.app.transcript.rows import NEW_LINE, NOTHING, PARTS, SPACE, Look, Row, Styles
from macspec.app.transcript.turn import TurnRows

STYLES = Styles(Style.null(), {part: Style(link=part) for part in PARTS})
WIDTHS = st.sampled_from([20, 37, 100])


def rows(text: str, width: int = 60, **look: bool) -> list[Row]:
    """A reply's text, without the rows around it."""
    return turn_rows(TurnRows(Turn(1, "assistant", text)), width, **look)[1:-1]


def turn_rows(turn: TurnRows, width: int = 60, **look: bool) -> list[Row]:
    turn.arrange(Look(STYLES, width, **look))
    return [row for part in turn.parts for row in part.drawn()]


def seen(text: str, width: int = 60, **look: bool) -> list[str]:
    return [row.strip.text.rstrip() for row in rows(text, width, **look)]


def copied(found: list[Row]) -> str:
    return "".join(row.strip.text[row.lead :].rstrip() + row.join for row in found)


def test_markdown_is_drawn() -> None:
    text = "# Head\n\nOne **two** *three* `four` ~~five~~\n\n- six\n  - seven\n1. eight\n\n> nine"
    assert seen(text) == [
        "Head",
        "",
        "One two three four five",
        "",
        " • six",
        "    • seven",
        "  1 eight",
        "",
        "▌ nine",
    ]


def test_a_newline_is_a_newline() -> None:
    assert seen("one\ntwo  \nthree\\\nfour") == ["one", "two", "three", "four"]


def test_html_is_text() -> None:
    assert seen("<b>x</b> <!-- y -->\n\n<script>\nz\n</script>\n\n<think>") == [
        "<b>x</b> <!-- y -->",
        "",
        "<script>",
        "z",
        "</script>",
        "",
        "<think>",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[bank](https://evil.example/x)", "bank (https://evil.example/x)"),
        ("<https://example.org>", "https://example.org"),
        ("<me@example.org>", "me@example.org"),
        ("![picture](https://evil.example/x.png)", "!picture (https://evil.example/x.png)"),
        ("[a](javascript:alert(1))", "[a](javascript:alert(1))"),
        ("[a](file:///etc/passwd)", "[a](file:///etc/passwd)"),
        ("[a]: https://example.org\n[a]", "[a]: https://example.org\n[a]"),
        ("[x](https://a.example 'title')", "x (https://a.example)"),
    ],
)
def test_addresses_stand_beside_their_links(text: str, shown: str) -> None:
    assert "\n".join(seen(text)) == shown


def test_entities_cannot_bring_what_the_text_cannot() -> None:
    assert seen("&lt;tag&gt; &amp; a&#x202e;b&#8203;c&#27;[31m &#0;") == [
        "<tag> & ab\u200bc�[31m �"
    ]


def test_entities_in_the_name_of_a_language() -> None:
    assert not harms("".join(row.strip.text for row in rows("> ```&#x202e;py\n> x\n> ```")))


def test_numbers_of_lists_keep_their_column() -> None:
    shown = seen("\n".join(f"{number}. item" for number in range(8, 12)))
    assert shown == ["  8 item", "  9 item", " 10 item", " 11 item"]


def test_tables_fold_and_lose_nothing() -> None:
    text = "| name | value |\n|:--|--:|\n| " + "long " * 8 + "| 12345678901234567890 |"
    shown = " ".join(seen(text, 20)).split()
    assert shown.count("long") == 8
    assert "12345678901234567890" in "".join(shown).replace("long", "")


def test_code_has_a_label_and_a_number() -> None:
    shown = seen("```python\nx = 1\n```\n\n1. a\n   ```\n   y\n   ```\n\n~~~{.sh}\nz\n~~~")
    labels = [line.strip() for line in shown if "·" in line]
    assert labels == ["python · 1", "code · 2", "sh · 3"]


def test_code_is_coloured_and_copied_as_it_stands() -> None:
    text = "```python\ndef f():\n    return 1  # one\n\n\n    two = '" + "x" * 90 + "'\n```"
    found = rows(text, 40)
    styles = {segment.style.link for row in found for segment in row.strip if segment.style}
    assert {"keyword", "number", "comment", "string"} <= styles
    assert copied(found[1:]) == text.split("\n", 1)[1].removesuffix("```")


def test_labels_of_code_are_not_copied() -> None:
    found = rows("- a\n  ```py\n  x\n  ```\n\n```sh\ny\n```")
    assert [row.strip.text.strip(" •") for row in found if row.ornament] == ["py · 1", "sh · 2"]


def test_soft_breaks_join_again_in_a_copy() -> None:
    text = "some words that are long enough to be broken a few times"
    found = rows(text, 12)
    assert len(found) > 3
    assert {row.join for row in found[:-1]} == {SPACE}
    assert found[-1].join == NEW_LINE
    assert copied(found) == text + "\n"
    assert copied(rows("x" * 50, 12)) == "x" * 50 + "\n"
    assert rows("x" * 50, 12)[0].join == NOTHING


@generated(MARKDOWN, WIDTHS, st.booleans())
def test_no_row_is_wider_than_the_screen(text: str, width: int, tint: bool) -> None:
    wide = [row.strip.text for row in rows(text, width, tint=tint) if row.strip.cell_length > width]
    assert wide == []


@generated(MARKDOWN)
def test_no_word_is_lost(text: str) -> None:
    words = re.findall(r"[a-z]{2,}|[中文字]+", text.split("```")[0])
    shown = re.sub(r"[\s▌•]", "", copied(rows(text, 100)))
    for word in words:
        assert word in shown


@generated(MARKDOWN)
def test_tint_shows_the_source(text: str) -> None:
    turn = TurnRows(Turn(1, "assistant", text))
    turn_rows(turn, 60, tint=True)
    body = [row for part in turn.parts if part.block for row in part.drawn()]
    shown, expected = copied(body).split("\n"), turn.answer.text.split("\n")
    assert ["".join(line.split()) for line in shown[: len(expected)]] == [
        "".join(line.split()) for line in expected
    ]


@generated(cut(MARKDOWN), st.booleans())
def test_any_cut_of_the_stream_gives_the_same_rows(case: tuple[str, list[str]], tint: bool) -> None:
    text, pieces = case
    spans = [(len(piece), "draft" if number % 2 else None) for number, piece in enumerate(pieces)]
    look = Look(STYLES, 60, tint)
    streamed = TurnRows(Turn(1, "assistant", "", state="open"))
    streamed.arrange(look)
    for piece, span in zip(pieces, spans, strict=True):
        streamed.take([TextPiece(piece, [span])])
        streamed.compose()
        for part in streamed.parts[-3:]:
            part.drawn()
    final = Turn(1, "assistant", text, spans=spans)
    streamed.update(final)
    whole = TurnRows(final)
    assert [(row.strip, row.join) for row in turn_rows(whole, 60, tint=tint)] == [
        (row.strip, row.join) for part in streamed.parts for row in part.drawn()
    ]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("tint", [False, True])
@pytest.mark.parametrize("width", [3, 80])
def test_hostile_text_is_only_text(name: str, tint: bool, width: int) -> None:
    turn = Turn(1, "assistant", TEXTS[name], reasoning=TEXTS[name][:3_000], model=TEXTS[name][:200])
    entry = TurnRows(turn)
    entry.arrange(Look(STYLES, width, tint, reasoning=True))
    for part in (*entry.parts[:6], entry.parts[-1]):
        for row in part.drawn():
            assert not harms(row.strip.text)
            for segment in row.strip:
                assert segment.control is None
                assert "\n" not in segment.text
                assert "\t" not in segment.text
                link = segment.style.link if segment.style else None
                assert link is None or link in PARTS
                assert not segment.style or "@click" not in segment.style.meta


@pytest.mark.parametrize("tint", [False, True])
def test_users_see_what_they_typed(tint: bool) -> None:
    turn = TurnRows(Turn(1, "user", "# not *Markdown*\n\n  [bold]as typed[/]"))
    shown = [row.strip.text for row in turn_rows(turn, tint=tint)]
    assert shown == ["You", "# not *Markdown*", "", "  [bold]as typed[/]", ""]
