"""The comparison on Spec-Bench as a JSON file, which a later run goes on with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import BadOptionError, brief
from ..kernels import Kernels
from ..models import Pair
from ..power import conditions
from . import document as reports
from .questions import Question
from .specbench import Plan, SpecBench
from .specrows import COLUMNS, Row, SpecCell, best_depths, cells

KIND = "macspec specbench"

FORMAT = 1

ROWS = "@rows@"
"""Stands for the rows until they are written, a line each."""


@dataclass(slots=True)
class SpecFile:
    """What is in the file.

    Args:
        path: where it is, or will be.
        fixed: what must be the same in all runs.
    """

    path: Path
    fixed: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    """When, for how long and under what conditions it was measured."""
    learned: dict[str, Any] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, fixed: Mapping[str, Any]) -> SpecFile:
        """The file with what it holds so far, or a new one.

        Raises:
            BadOptionError: it cannot be read, or something else was measured in it.
        """
        fixed = json.loads(json.dumps(fixed))
        if not path.exists():
            return cls(path, dict(fixed))
        stored = read(path)
        for name, value in fixed.items():
            if stored.get(name) != value:
                raise BadOptionError(
                    f"{path} was measured with other {name}: go on with the same, or name a new "
                    "file with --out"
                )
        return cls(
            path,
            dict(fixed),
            [Row.from_list(row) for row in stored["rows"]],
            stored["runs"],
            stored.get("learned", {}),
            stored.get("first_replies", {}),
        )

    def begin(self) -> None:
        """Note when a run begins, and what the machine is like."""
        self.runs.append(
            {
                "began": datetime.now(UTC).isoformat(timespec="seconds"),
                "load_before": reports.load_average(),
                "conditions": asdict(conditions()),
            }
        )

    def save(self, bench: SpecBench, command: Sequence[str], seconds: float) -> None:
        """Write everything, whole or not at all.

        Raises:
            BadOptionError: it cannot be written.
        """
        self.rows = bench.rows
        self.runs[-1]["seconds"] = round(seconds, 1)
        forced = {it.workload: it.forced is not None for it in bench.questions}
        found = best_depths(self.rows, bench.tasks)
        document: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "complete": bench.complete,
            "command": list(command),
            **self.fixed,
            "runs": self.runs,
            "trials": [
                {"temperature": temperature, "task": task, "tokens_per_s_by_depth": speeds}
                for (temperature, task), speeds in found.items()
            ],
            "cells": [cell.as_dict() for cell in cells(self.rows, bench.tasks, forced)],
            "columns": COLUMNS,
            "rows": ROWS,
        }
        if not bench.complete:
            document["learned"] = self.learned
            document["first_replies"] = self.said
        lines = ",\n".join(f"  {json.dumps(row.as_list())}" for row in self.rows)
        text = json.dumps(document, indent=1).replace(f'"{ROWS}"', f"[\n{lines}\n ]") + "\n"
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(text, encoding="utf-8")
            os.replace(aside, self.path)
        except OSError as error:
            raise BadOptionError(f"cannot write {self.path}: {brief(error)}") from None
        finally:
            aside.unlink(missing_ok=True)


def fixed(
    pair: Pair, kernels: Kernels, plan: Plan, questions: Sequence[Question]
) -> dict[str, Any]:
    """What must be the same in all runs."""
    return {
        "machine": reports.machine(),
        "models": reports.models(pair, kernels, None),
        "plan": plan.as_dict(),
        "questions": [
            {
                "id": it.id,
                "task": it.workload,
                "digest": it.task.digest,
                "prompt_tokens": len(it.ids),
                "max_tokens": it.max_tokens,
                "forced": it.forced is not None,
            }
            for it in questions
        ],
    }


def read(path: Path) -> dict[str, Any]:
    """A document that ``SpecFile`` wrote.

    Raises:
        BadOptionError: it cannot be read, or is something else.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict) or stored.get("kind") != KIND:
            raise ValueError("it was not written by macspec bench specbench")
        if stored["format"] != FORMAT or stored["columns"] != COLUMNS:
            raise ValueError("another version of macspec wrote it")
        cells_of(stored)
        for row in stored["rows"]:
            Row.from_list(row)
    except OSError as error:
        raise BadOptionError(f"cannot read {path}: {brief(error)}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadOptionError(f"{path} cannot be used: {brief(error)}") from None
    return stored


def cells_of(document: Mapping[str, Any]) -> list[SpecCell]:
    """The cells of a document.

    Raises:
        KeyError, TypeError: it is something else.
    """
    return [SpecCell.from_dict(cell) for cell in document["cells"]]
