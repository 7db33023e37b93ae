"""The gates of the app, measured by hand: ``python tests/perf/app.py``.

Decode speed against ``macspec run`` on the same pair, the share of a core that the app takes, how
soon it starts and leaves, how soon a key shows, and its longest freeze. The app runs in a terminal
and a folder of its own; Ctrl-C keeps what was measured.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import appcost
from appcost import PARTS, AppCost, Plan
from realapp import Asked

from macspec.bench import document
from macspec.cli.bench import listed
from macspec.cli.benchcommands import MeasureBar
from macspec.cli.options import Parser, add_models, fill, whole
from macspec.errors import BadOptionError, MacspecError
from macspec.terminal import Output, complain, interruptible, say, status_of

BUILT_IN_PROMPT = "Repeat: " + " ".join(["la"] * 30)
"""The built-in pair continues this one until it is stopped."""

PROMPT = (
    "Tell me the whole story of a long sea voyage, in at least two thousand words, with every "
    "harbour, every storm and everybody on board."
)

DEPTH = 4

LEAST = 256
"""Tokens of a reply, by default."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, report, and return the exit status."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    try:
        fill(options)
        return measure(options)
    except MacspecError as error:
        complain(str(error))
        return 2


def parser() -> Parser:
    """The command line of this script."""
    it = Parser(prog="python tests/perf/app.py", description=__doc__)
    it.add_argument("--only", metavar="A,B", type=parts, help=f"of {', '.join(PARTS)}")
    it.add_argument("--repeats", metavar="N", type=whole(1), default=5, help="(default: 5)")
    it.add_argument("--prompt", metavar="TEXT", help="default: one with a long reply")
    # Under a name of its own: no user's setting may change what is measured.
    it.add_argument(
        "--max-tokens",
        dest="longest",
        metavar="N",
        type=whole(16),
        help="longest reply; default: five seconds' worth, between 256 and 1600",
    )
    it.add_argument("--seed", metavar="N", type=whole(0, 2**32), default=1, help="(default: 1)")
    it.add_argument("--out", metavar="FILE", help="also write a report, a file ending in .json")
    add_models(it)
    return it


def parts(text: str) -> list[str]:
    """An argument type: measures between commas."""
    found = listed(text)
    for part in found:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(
                f"{part!r} is not measured: choose from {','.join(PARTS)}"
            )
    return found


def measure(options: argparse.Namespace) -> int:
    """Measure what the options ask for."""
    began = time.perf_counter()
    built_in = options.target is None
    asked = Asked(
        tuple(models_of(options)),
        options.prompt or (BUILT_IN_PROMPT if built_in else PROMPT),
        options.longest or LEAST,
        DEPTH if built_in or options.draft else 0,
        options.seed,
    )
    chosen = tuple(part for part in PARTS if part in (options.only or PARTS))
    plan = Plan(parts=chosen, repeats=options.repeats, fit=options.longest is None)
    out = None if options.out is None else report_path(options.out)
    bar, status = MeasureBar("steps"), 0
    with tempfile.TemporaryDirectory(prefix="macspec-bench-", ignore_cleanup_errors=True) as folder:
        cost = AppCost(asked, plan, Path(folder))
        try:
            with interruptible():
                for step in cost.run():
                    bar.show(step)
        except KeyboardInterrupt as interrupt:
            status = status_of(interrupt)
            if not cost.values:
                say("nothing was measured yet")
        finally:
            bar.end()
            if cost.values:
                Output().text(appcost.told(cost))
                if out is not None:
                    command = ["python", *map(shlex.quote, sys.argv)]
                    found = appcost.document(cost, command, time.perf_counter() - began)
                    document.write(out, json.dumps(found, indent=1) + "\n")
                    say(f"report: {out}")
    return status


def report_path(name: str) -> Path:
    """Where the report goes.

    Raises:
        BadOptionError: not a JSON file.
    """
    path = Path(name).expanduser()
    if path.suffix != ".json" or path.is_dir():
        raise BadOptionError(f"--out {name}: the report is a file that ends in .json")
    return path


def models_of(options: argparse.Namespace) -> list[str]:
    """The pair as options of ``macspec run`` and ``macspec chat``."""
    found = ["--target", options.target or "built-in"]
    found += ["--draft", options.draft or "none"] if options.target is not None else []
    found += [] if options.context is None else ["--context", str(options.context)]
    found += [] if options.kv_bits is None else ["--kv-bits", str(options.kv_bits)]
    return [*found, *(["--trust-remote-code"] if options.trust_remote_code else [])]


if __name__ == "__main__":
    sys.exit(main())
