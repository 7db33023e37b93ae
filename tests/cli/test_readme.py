"""The README's Python example works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_example_streams_text_and_prints_the_acceptance(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(example.splitlines()) == 10
    exec(compile(example, "README.md", "exec"), {})
    text, _, last = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    assert text.strip()
    assert re.fullmatch(r"acceptance [01]\.\d\d", last)


def test_every_file_that_is_linked_is_there() -> None:
    text = README.read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    assert linked
    for name in [*linked, *re.findall(r"`((?:macspec|tests)/[\w/]+\.py)`", text)]:
        assert (README.parent / name).exists(), name
