"""The blocks of code in a reply."""

from __future__ import annotations

from markdowntexts import MARKDOWN, generated

from macspec.app.chat.turns import Turn
from macspec.app.transcript.canvas import RowList
from macspec.app.transcript.markdown import CodeBlock, code_blocks
from macspec.app.transcript.turn import TurnRows


def test_blocks_come_in_order_wherever_they_stand() -> None:
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
