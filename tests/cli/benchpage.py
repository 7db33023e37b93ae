"""The results in macspec/bench/README.md: every number comes from ``assets/results``.

``python tests/cli/benchpage.py`` puts them in, between ``<!-- results: NAME -->`` and
``<!-- end of results -->``; with ``--check`` it only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from macspec.bench import report, specbench, spectables
from macspec.errors import BadOptionError, MacspecError

ROOT = Path(__file__).parents[2]

README = ROOT / "macspec/bench/README.md"

RESULTS = ROOT / "assets/results"

BLOCK = re.compile(
    r"(?P<begin><!-- results: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of results -->)",
    re.DOTALL,
)


def renewed(text: str, results: Path) -> str:
    """A page with the results as they are in a folder.

    Raises:
        BadOptionError: a file is missing, damaged or incomplete.
    """

    def block(match: re.Match[str]) -> str:
        path = results / f"{match['name']}.json"
        document = specbench.read(path)
        if not document["complete"]:
            raise BadOptionError(f"{path} is not complete: run its command again")
        return f"{match['begin']}\n{report.markdown(spectables.blocks(document))}\n{match['end']}"

    return BLOCK.sub(block, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew the page, or check it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/cli/benchpage.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--page", type=Path, default=README, metavar="FILE")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
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
    print(f"{options.page}: renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
