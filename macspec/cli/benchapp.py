"""``macspec bench app``: what the app costs beside the engine."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..bench import record
from ..bench.app import table
from ..bench.app.cost import AppCost
from ..bench.app.plan import PARTS, Plan
from ..bench.app.real import Asked
from ..errors import BadOptionError
from ..terminal import Output, interruptible, say, status_of
from .benchprogress import MeasureBar

OWN_PROMPT = "Repeat: " + " ".join(["la"] * 30)
"""To this one the built-in pair goes on until it is stopped."""

PROMPT = (
    "Tell me the whole story of a long sea voyage, in at least two thousand words, with every "
    "harbour, every storm and everybody on board."
)

DEPTH = 4

LEAST = 256
"""Tokens of a reply, where nothing else is asked for."""


def benchapp(options: argparse.Namespace) -> int:
    """Measure, report, and return the exit status."""
    began = time.perf_counter()
    own = options.target is None
    prompt = options.prompt or (OWN_PROMPT if own else PROMPT)
    models = models_of(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
    )
    asked = Asked(
        tuple(models),
        prompt,
        options.longest or LEAST,
        DEPTH if own or options.draft else 0,
        options.seed,
    )
    parts = tuple(part for part in PARTS if part in (options.only or PARTS))
    plan = Plan(parts=parts, repeats=options.repeats, fit=options.longest is None)
    out = None if options.out is None else _place(options.out)
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
                _tell(cost, out, time.perf_counter() - began)
    return status


def _tell(cost: AppCost, out: Path | None, seconds: float) -> None:
    Output().text(table.told(cost))
    if out is not None:
        command = ["macspec", *map(shlex.quote, sys.argv[1:])]
        record.save(out, table.document(cost, command, seconds))
        say(f"report: {out}")


def _place(name: str) -> Path:
    """Where the report goes.

    Raises:
        BadOptionError: that is no file of JSON.
    """
    path = Path(name).expanduser()
    if path.suffix != ".json" or path.is_dir():
        raise BadOptionError(f"--out {name}: the report is a file that ends in .json")
    return path


def models_of(
    target: str | None,
    draft: str | None,
    *,
    context: int | None,
    kv_bits: int | None,
    trust_remote_code: bool,
) -> Sequence[str]:
    """The command line's own options of a pair."""
    found = ["--target", target or "built-in"]
    found += ["--draft", draft or "none"] if target is not None else []
    found += [] if context is None else ["--context", str(context)]
    found += [] if kv_bits is None else ["--kv-bits", str(kv_bits)]
    return [*found, *(["--trust-remote-code"] if trust_remote_code else [])]
