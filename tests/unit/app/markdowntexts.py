"""Markdown as models write it, whole and broken, for generated tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

LINES = st.sampled_from(
    [
        "",
        "",
        "plain words",
        "a **bold** and `code` [link](https://example.org)",
        "# Heading",
        "## Other",
        "Title",
        "---",
        "===",
        "* * *",
        "- item",
        "  - nested",
        "  more of the item",
        "10. ten",
        "1. one",
        "2) two",
        "```python",
        "```",
        "~~~",
        "````",
        "  ```sh",
        "  ```",
        "    indented",
        "\ttab",
        "> quote",
        "> - item in a quote",
        "> ```",
        "| a | b |",
        "|---|--:|",
        "| 1 | 2 |",
        "<b>html</b>",
        "[ref]: https://example.org",
        "x" * 900,
        "word " * 400,
        "- " + "long " * 500,
        "中文字 " * 300,
        "\x1b[31m",
        "\u202egnp",
        "one\r",
    ]
)

MARKDOWN = st.builds(
    lambda lines, end: "\n".join(lines) + end,
    st.lists(LINES, max_size=25),
    st.sampled_from(["", "\n", "\n\n", "`", "\n-"]),
)


@st.composite
def cut(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[str, list[str]]:
    """A text, and the same in pieces."""
    text = draw(texts)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    bounds = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    return text, pieces


def generated(*cases: st.SearchStrategy[Any]) -> Any:
    """``given``, however long a case takes on a busy machine."""

    def wrap(test: Any) -> Any:
        return settings(deadline=None, max_examples=30)(given(*cases)(test))

    return wrap
