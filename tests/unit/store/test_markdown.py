"""Markdown to read: no text of a message reaches beyond its place, or a terminal's controls."""

from __future__ import annotations

import re

import pytest
from hostile import TEXTS, harms

from macspec.store import CUT_OFF, RAW, Chat, GenerationMetadata, Message, model_name
from macspec.store.transfer import markdown, whole

DAY = 1_700_000_000.0


def chat(title: str = "Pears", system: str = "") -> Chat:
    return Chat(1, "", title, "user", system, {}, "", None, DAY, DAY)


def turn(role: str, text: str, **fields: object) -> Message:
    return Message(1, 1, None, role, text, made=DAY, **fields)  # type: ignore[arg-type]


def test_a_conversation_as_markdown() -> None:
    metadata = GenerationMetadata(model="/models/big")
    text = markdown(
        chat(system="Be brief."),
        [
            turn("user", "Pears?\n"),
            turn("assistant", "Sweet.", reasoning="Hm.\n\nHm.", metadata=metadata, state=CUT_OFF),
        ],
    )
    day = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(
        rf"# Pears\n\n\*{day}\*\n\n## System\n\nBe brief\.\n\n## You \({day}\)\n\nPears\?\n\n"
        rf"## big \({day}, cut off\)\n\n> Hm\.\n>\n> Hm\.\n\nSweet\.\n",
        text,
    )


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_shown_and_not_obeyed(name: str) -> None:
    text = TEXTS[name]
    shown = markdown(
        chat(text, text), [turn(role, text, reasoning=text) for role in ("user", "assistant", RAW)]
    )
    # Half a surrogate pair becomes U+FFFD when it is written.
    assert [harm for harm in harms(shown) if not harm.startswith("'\\ud")] == []
    assert shown.splitlines()[0].startswith("# ")


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("plain", "plain"),
        ("```python\nx", "```python\nx\n```"),
        ("```\nx\n```", "```\nx\n```"),
        ("````\n```\nx", "````\n```\nx\n````"),
        ("~~~ a\n```\n~~~", "~~~ a\n```\n~~~"),
        ("```\n~~~\n", "```\n~~~\n\n```"),
        ("``` inline ``` code", "``` inline ``` code"),
        ("    ```\nindented", "    ```\nindented"),
        ("```\n``` not an end", "```\n``` not an end\n```"),
    ],
)
def test_an_open_block_of_code_is_closed(text: str, closed: str) -> None:
    assert whole(text) == closed


@pytest.mark.parametrize(
    ("model", "name"),
    [(None, "built-in"), ("org/big@main", "org/big@main"), ("/a/b\x1b[2J", "b␛[2J")],
)
def test_a_model_by_its_name(model: str | None, name: str) -> None:
    assert model_name(model) == name
