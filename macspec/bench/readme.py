"""The results in README: every number comes from a file in ``assets/results``.

``python -m macspec.bench.readme`` puts them in, between ``<!-- results: NAME -->`` and
``<!-- end of results -->``; with ``--check`` it only says whether they are there as they should be.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BadOptionError, MacspecError
from . import document as reports
from . import report, specfile, spectable
from .cells import ALL, FORCED
from .report import Table, by_workload, summary

ROOT = Path(__file__).resolve().parents[2]

BLOCK = re.compile(
    r"(?P<begin><!-- results: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of results -->)",
    re.DOTALL,
)


def names(text: str) -> list[str]:
    """The results that a page shows."""
    return [match["name"] for match in BLOCK.finditer(text)]


def renewed(text: str, results: Path) -> str:
    """A page with the results as they are in a folder.

    Raises:
        BadOptionError: a file is missing or damaged, or what it holds was not measured to its end.
    """

    def block(match: re.Match[str]) -> str:
        shown = rendered(results / f"{match['name']}.json")
        return f"{match['begin']}\n{shown}\n{match['end']}"

    return BLOCK.sub(block, text)


def rendered(path: Path) -> str:
    """The tables of one file, and how to read them, as Markdown.

    Raises:
        BadOptionError: as for ``renewed``.
    """
    read, parts = (specfile.read, _spec_bench) if _is_spec_bench(path) else (reports.load, _bench)
    document = read(path)
    if not document["complete"]:
        raise BadOptionError(f"{path} was not measured to its end: run its command again")
    return "\n".join(part for part in parts(document) if part)


def _is_spec_bench(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_bytes())["kind"] == specfile.KIND)
    except (OSError, ValueError, TypeError, KeyError):
        return False  # the other reader says what is wrong


def _spec_bench(document: Mapping[str, Any]) -> Iterator[str]:
    yield _listed(spectable.head(document))
    yield from (table.markdown() for table in spectable.tables(document))
    said = [*spectable.verdict(specfile.cells_of(document)), *spectable.notes(document)]
    yield _listed(said)


def _bench(document: Mapping[str, Any]) -> Iterator[str]:
    cells, baseline = reports.cells_of(document), document["baseline"]
    found: list[Table] = []
    for group in (ALL, ALL + FORCED):
        found += summary(cells, baseline, group)
    found += by_workload(cells, baseline)
    yield _listed(report.head(document))
    yield from (table.markdown() for table in found)


def _listed(lines: Iterator[str] | Sequence[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew the page, or check it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m macspec.bench.readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md", metavar="FILE")
    parser.add_argument("--results", type=Path, default=ROOT / "assets/results", metavar="FOLDER")
    options = parser.parse_args(arguments)
    text = options.page.read_text(encoding="utf-8")
    try:
        whole = renewed(text, options.results)
    except MacspecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if whole == text:
        return 0
    if options.check:
        print(f"{options.page} does not show what {options.results} holds", file=sys.stderr)
        return 1
    options.page.write_text(whole, encoding="utf-8")
    print(f"{options.page}: renewed {', '.join(names(text))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
