"""The pages: their links lead somewhere, and the Python example works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for folder in (".", ".github", "app", "assets", "macspec", "metal", "tests")
    for page in sorted(ROOT.glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md"))
]


def test_the_example_streams_text_and_prints_the_acceptance(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = ROOT / "macspec" / "README.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(example.splitlines()) == 10
    exec(compile(example, page.name, "exec"), {})
    text, _, last = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    assert text.strip()
    assert re.fullmatch(r"acceptance [01]\.\d\d", last)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_linked_file_exists(page: Path) -> None:
    for name in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        # A page of the repository's site, not a file.
        if name != "../../security/advisories/new":
            assert (page.parent / name).exists(), name


def test_the_first_page_is_one_page() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
