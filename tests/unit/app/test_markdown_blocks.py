"""A growing text is cut into blocks by what it says, not by how it arrives; and code is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from markdowntexts import MARKDOWN, cut, generated

from macspec.app.chat.turns import Turn
from macspec.app.transcript.canvas import RowList
from macspec.app.transcript.markdown import (
    MOST,
    MOST_LINES,
    Block,
    CodeBlock,
    Markdown,
    code_blocks,
    plain_blocks,
)
from macspec.app.transcript.turn import TurnRows


def blocks_of(text: str) -> Markdown:
    source = Markdown()
    source.take(text)
    return source


BLOCKS = pytest.mark.parametrize("blocks", [lambda text: blocks_of(text).blocks, plain_blocks])
Blocks = Callable[[str], list[Block]]


def texts(text: str) -> list[tuple[str, str]]:
    source = blocks_of(text)
    return [(block.kind, source.text[block.start : block.stop]) for block in source.blocks]


@generated(cut(MARKDOWN))
def test_any_cut_of_the_stream_gives_the_same_blocks(case: tuple[str, list[str]]) -> None:
    text, pieces = case
    source = Markdown()
    for piece in pieces:
        before = list(source.closed)
        source.take(piece)
        assert source.closed[: len(before)] == before
        assert source.blocks == blocks_of(source.text).blocks
    assert source.text == text


@generated(MARKDOWN, MARKDOWN)
def test_only_the_last_block_of_a_plain_text_grows(text: str, more: str) -> None:
    closed = plain_blocks(text)[:-1]
    assert plain_blocks(text + more)[: len(closed)] == closed


@BLOCKS
@generated(MARKDOWN)
def test_every_character_is_in_one_block(blocks: Blocks, text: str) -> None:
    at, left = 0, ""
    for block in blocks(text):
        assert at <= block.start <= block.stop
        left += text[at : block.start]
        at = block.stop
    left += text[at:]
    assert all(not line.strip() or line.lstrip()[:3] in ("```", "~~~") for line in left.split("\n"))
    if blocks is plain_blocks:
        assert not left


@BLOCKS
@generated(MARKDOWN)
def test_no_block_is_long(blocks: Blocks, text: str) -> None:
    for block in blocks(text):
        assert block.stop - block.start <= MOST + 1
        assert text.count("\n", block.start, block.stop) <= max(MOST_LINES, MOST // 20) + 1


def test_paragraphs_headings_items_and_code_are_blocks() -> None:
    text = "One\nline\n\n# Two\nThree\n- a\n- b\n  c\n\n  d\n\nFour\n```py\nx\n\ny\n```\nFive"
    assert texts(text) == [
        ("text", "One\nline\n"),
        ("text", "# Two\n"),
        ("text", "Three\n"),
        ("item", "- a\n"),
        ("item", "- b\n  c\n\n  d\n"),
        ("text", "Four\n"),
        ("code", "x\n\ny\n"),
        ("text", "Five"),
    ]


def test_a_blank_line_stays_where_there_was_one() -> None:
    blocks = blocks_of("a\n\nb\n- c\n- d\n\n- e\n# f\ng").blocks
    assert [block.gap for block in blocks] == [False, True, False, False, True, True, True]


def test_numbers_go_on_from_item_to_item() -> None:
    blocks = blocks_of("3. a\n3. b\n\n3. c\n\ntext\n\n7. d").blocks
    assert [block.number for block in blocks] == [3, 4, 5, None, 7]


def test_nested_items_belong_to_their_item() -> None:
    assert texts("- a\n  - b\n    - c\n- d") == [("item", "- a\n  - b\n    - c\n"), ("item", "- d")]


def test_a_fence_inside_an_item_is_not_cut() -> None:
    text = "1. a\n   ```\n\n   1. b\n\n   ```\n2. c"
    assert texts(text) == [("item", text[: text.index("2. c")]), ("item", "2. c")]


def test_a_number_in_a_sentence_begins_no_list() -> None:
    assert texts("It was in\n1984. A year\n") == [("text", "It was in\n1984. A year\n")]


def test_an_open_fence_is_code_to_the_end() -> None:
    assert texts("```\na\n\n# b") == [("code", "a\n\n# b")]


def test_a_longer_fence_holds_a_shorter_one() -> None:
    assert texts("````\n```\n````\n~~~") == [("code", "```\n"), ("code", "")]


def test_a_long_table_keeps_its_head() -> None:
    head = "| a | b |\n|---|---|\n"
    source = blocks_of(head + "| 1 | 2 |\n" * 100)
    first, *rest = source.blocks
    assert first.head is None
    assert rest
    assert all(source.text[slice(*block.head)] == head for block in rest if block.head)
    assert all(block.head for block in rest)


def test_a_long_item_keeps_its_indent_and_its_code() -> None:
    text = (
        "1. Title\n\n"
        + "   - sub\n" * 50
        + "\n   ```py\n"
        + "   x = 1\n" * 60
        + "   ```\n2. next\n"
    )
    blocks = blocks_of(text).blocks
    assert [block.indent for block in blocks[:12]] == [0, *[3] * 11]
    code = [block for block in blocks if block.kind == "code"]
    assert [(block.first, block.info, block.indent) for block in code] == [
        (True, "py", 3),
        (False, "py", 3),
    ]
    assert code_blocks(text) == [CodeBlock("py", "x = 1\n" * 60)]


def test_long_code_goes_on_as_code() -> None:
    blocks = blocks_of("```py\n" + "x = 1\n" * 200 + "```\nend").blocks
    assert [block.kind for block in blocks] == ["code"] * 5 + ["text"]
    assert [block.first for block in blocks] == [True, False, False, False, False, True]
    assert {block.info for block in blocks[:5]} == {"py"}


def test_blocks_of_code_come_in_order_wherever_they_stand() -> None:
    text = (
        "One\n```py\nx = 1\n\ny = 2\n```\n- item\n  ```sh\n  ls\n  ```\n\n> ~~~js\n> a\n> ~~~\n\n"
        "    indented\n\n````\n```\n````\n```{.c title='x'}\n"
    )
    assert code_blocks(text) == [
        CodeBlock("py", "x = 1\n\ny = 2\n"),
        CodeBlock("sh", "ls\n"),
        CodeBlock("js", "a\n"),
        CodeBlock("", "indented\n"),
        CodeBlock("", "```\n"),
        CodeBlock("c", ""),
    ]


def test_long_code_is_one_block() -> None:
    code = "x = 1\n" * 500
    assert code_blocks(f"```\n{code}```") == [CodeBlock("", code)]


def test_an_indented_fence_moves_its_lines() -> None:
    assert code_blocks("  ```\n  a\n    b\n c\n  ```") == [CodeBlock("", "a\n  b\nc\n")]


def test_code_is_copied_as_it_is_seen() -> None:
    assert code_blocks("```sh\nharmless\rrm -rf ~ \x1b[31m\u202e\n```")[0].text == (
        "harmlessrm -rf ~ ␛[31m\n"
    )


def test_text_without_code() -> None:
    assert code_blocks("") == code_blocks("`one` and ``two``") == []


@generated(MARKDOWN)
def test_the_numbers_on_the_screen_are_those_of_the_list(text: str) -> None:
    rows = RowList()
    turn = TurnRows(Turn(1, "assistant", text))
    rows.entries.append(turn)
    turn.arrange(rows.look)
    drawn = [
        row.strip.text.strip(" ▌•0123456789").strip() for part in turn.parts for row in part.drawn()
    ]
    labels = [f"{code.language or 'code'} ·" for code in code_blocks(text)]
    assert [line for line in drawn if line.endswith("·")] == labels
