"""Spans over the text that is shown."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st
from markdowntexts import MARKDOWN, cut, generated
from rich.style import Style
from rich.text import Text

from macspec.app.transcript.markdown import clean
from macspec.app.transcript.rows import PARTS, Styles
from macspec.app.transcript.source import UNKNOWN, Authors, legend, tinted

STYLES = Styles(Style.null(), {part: Style(link=part) for part in PARTS})
WHO = st.sampled_from([None, "draft", "ngram", "suffix", "other"])


@st.composite
def written(draw: st.DrawFn) -> list[tuple[str, list[tuple[int, str | None]]]]:
    """Pieces of a text, each with spans that add up to it."""
    pieces = []
    for piece in draw(cut(MARKDOWN))[1]:
        places = sorted(draw(st.lists(st.integers(0, len(piece)), max_size=5)))
        bounds = [0, *places, len(piece)]
        lengths = [b - a for a, b in pairwise(bounds)]
        pieces.append((piece, [(length, draw(WHO)) for length in lengths]))
    return pieces


@generated(written())
def test_every_shown_character_has_the_author_of_its_own(
    pieces: list[tuple[str, list[tuple[int, str | None]]]],
) -> None:
    authors, shown = Authors(), ""
    expected: list[str | None] = []
    for piece, spans in pieces:
        shown += authors.take(piece, spans)
        at = 0
        for length, who in spans:
            for character in piece[at : at + length]:
                expected += [who] * len(clean(character))
            at += length
    assert shown == clean("".join(piece for piece, _ in pieces))
    assert len(authors) == len(shown) == authors.counts().total()
    found = [(None, "?")] * len(shown)
    for start, stop, who in authors.within(0, len(shown)):
        found[start:stop] = [(who, "")] * (stop - start)
    assert [who for who, _ in found] == expected


@generated(written(), st.data())
def test_a_part_of_the_text_has_its_part_of_the_spans(
    pieces: list[tuple[str, list[tuple[int, str | None]]]], data: st.DataObject
) -> None:
    authors = Authors()
    for piece, spans in pieces:
        authors.take(piece, spans)
    start = data.draw(st.integers(0, len(authors)))
    stop = data.draw(st.integers(start, len(authors)))
    parts = list(authors.within(start, stop))
    assert sum(last - first for first, last, _ in parts) == stop - start
    whole = {
        at: who for first, last, who in authors.within(0, len(authors)) for at in range(first, last)
    }
    assert all(whole[start + at] == who for first, last, who in parts for at in range(first, last))


@generated(MARKDOWN, st.lists(st.tuples(st.integers(-3, 50), WHO), max_size=9))
def test_spans_that_do_not_add_up_lose_no_text(
    text: str, spans: list[tuple[int, str | None]]
) -> None:
    authors = Authors()
    assert authors.take(text, spans) == clean(text)
    assert len(authors) == len(clean(text))


def test_what_spans_leave_out_is_not_known() -> None:
    authors = Authors()
    authors.take("abcdef", [(2, "draft"), (1, None)])
    assert dict(authors.counts()) == {"draft": 2, None: 1, UNKNOWN: 3}


def test_a_text_is_styled_by_its_authors() -> None:
    authors = Authors()
    authors.take("own, draft\x00 and n-gram", [(5, None), (6, "draft"), (5, None), (6, "ngram")])
    text = Text("draft␀ and n")
    tinted(text, authors, 5, STYLES)
    assert [
        (text.plain[span.start : span.end], span.style.link) for span in text.spans if span.style
    ] == [("draft␀", "tint-draft"), ("n", "tint-ngram")]


def test_the_legend_names_the_authors_and_their_shares() -> None:
    authors = Authors()
    authors.take("x" * 10, [(5, "draft"), (2, "ngram"), (3, None)])
    assert [part.plain for part in legend(authors.counts(), STYLES)] == [
        "draft model 50%",
        "n-gram 20%",
        "the target's own 30%",
    ]
    authors.take("yy", ())
    assert legend(authors.counts(), STYLES)[-1].plain == "the rest: unknown"
    unknown = Authors()
    unknown.take("text", ())
    assert [part.plain for part in legend(unknown.counts(), STYLES)] == ["author unknown"]


def test_tints_differ_without_colour() -> None:
    signs = [
        tuple(sorted(rule.split("text-style: ")[1].strip(" ;").split()))
        for part, rule in PARTS.items()
        if part.startswith("tint-") and "text-style" in rule
    ]
    assert len(signs) == len(set(signs)) == 8
