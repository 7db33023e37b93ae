"""Finding conversations by their words, whatever the words are."""

from __future__ import annotations

import pytest
from hostile import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.store import Hit, Store


@pytest.fixture(scope="module")
def library() -> Store:
    """Conversations 1 to 5."""
    store = Store(None)
    for prompt, answer in [
        ("Why is the sky blue?", "Air scatters blue light more: Rayleigh scattering."),
        ("Un café crème, s'il vous plaît", "Voilà, Straße und Weg."),
        ("東京の天気は?", "今日は晴れです。"),
        ("What does foo->bar[0] mean in C?", "It reads foo, then bar.\0And the rest is hidden."),
        ("Tell me more", "The sky is not the limit; blue is a colour. " * 200),
    ]:
        chat = store.new_chat()
        reply = store.reply(chat.id, store.add(chat.id, None, prompt).id)
        reply.append(answer)
        reply.finish()
    return store


def ids(hits: list[Hit]) -> set[int]:
    return {hit.chat.id for hit in hits}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sky", {1, 5}),
        ("SKY blue", {1, 5}),
        ("scatter", {1}),
        ('"blue light"', {1}),
        ('"light blue"', set()),
        ("cafe creme", {2}),
        ("strasse", set()),
        ("straße", {2}),
        ("天気", {3}),
        ("晴れ", {3}),
        ("->bar[", {4}),
        ("attering", {1}),
        ("hidden", {4}),
        ("sky café", set()),
        ("", set()),
        ('"', set()),
        (" \0 ", set()),
    ],
)
def test_what_is_found(library: Store, query: str, found: set[int]) -> None:
    assert ids(library.search(query)) == found


def test_titles_come_first(library: Store) -> None:
    first, second = library.search("sky")
    assert (first.chat.id, first.message, first.role) == (1, None, "")
    assert (second.chat.id, second.role) == (5, "assistant")


def test_an_excerpt_shows_where(library: Store) -> None:
    (hit,) = library.search("limit colour")
    assert [text for text, match in hit.excerpt if match][:2] == ["limit", "colour"]
    assert sum(len(text) for text, _ in hit.excerpt) < 500
    (hit,) = library.search("hidden")
    assert hit.chat.id == 4


def test_only_so_many(library: Store) -> None:
    assert len(library.search("sky", 1)) == 1
    assert len(library.search("a", 2)) == 2


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_found_as_it_stands(name: str) -> None:
    text = TEXTS[name]
    store = Store(None)
    chat = store.new_chat()
    store.add(chat.id, None, f"before {text} after")
    (hit,) = store.search("after")
    assert sum(len(piece) for piece, _ in hit.excerpt) < 1_000
    query = text[:200]
    hits = store.search(query)
    searchable = query.encode("utf-8", "replace").decode().strip('" \0').strip()
    if searchable and "?" not in searchable and "\0" not in query and '"' not in query:
        assert hits, name
    assert store.trouble is None


@settings(max_examples=150, deadline=None)
@given(
    query=st.text(st.characters()) | st.text('"*^():-+{} ANDORNEAR\0\ud83d', max_size=30),
    text=st.text(st.characters()),
)
def test_any_query_has_an_answer(query: str, text: str) -> None:
    store = Store(None)
    store.add(store.new_chat().id, None, text)
    for hit in store.search(query):
        assert hit.chat.id == 1


def test_a_query_may_be_long(library: Store) -> None:
    assert library.search("word " * 5_000) == []
    assert library.search("x" * 100_000) == []
