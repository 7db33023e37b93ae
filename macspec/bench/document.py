"""A measurement as a JSON file: what was found, and everything needed to repeat it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..device import backend
from ..errors import BadOptionError, brief
from ..heads import LoadedHead
from ..io import write_atomic
from ..kernels import Kernels
from ..models import Model, Pair
from ..models.machine import unified_memory
from .cells import Cell
from .costs import curve_of
from .equality import Compared
from .run import Run
from .sample import named

PACKAGES = ("macspec", "mlx", "mlx-lm", "transformers", "numpy")


def machine() -> dict[str, Any]:
    """The machine and the programs on it."""
    info = mx.device_info()
    return {
        "chip": str(info.get("device_name") or platform.processor() or platform.machine()),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": unified_memory(),
        "backend": backend(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def models(pair: Pair, kernels: Kernels, kv_bits: int | None) -> dict[str, Any]:
    """The pair."""
    return {
        "target": described(pair.target),
        "draft": None if pair.draft is None else described(pair.draft),
        "head": None if pair.head is None else described_head(pair.head),
        "draft_off": pair.draft_off,
        "context": pair.context,
        "kv_bits": kv_bits,
        "kernels": kernels.state,
    }


def described_head(head: LoadedHead) -> dict[str, Any]:
    """A head, without the path to a user's folder."""
    name = head.name.removeprefix("of ")
    return {
        "name": os.path.basename(name) if os.path.isdir(name) else name,
        "kind": head.kind,
        "parameters": head.parameters,
        "weight_bytes": head.weight_bytes,
    }


def described(model: Model) -> dict[str, Any]:
    """A model, without the path to a user's folder."""
    config = json.dumps(model.config, sort_keys=True, default=str)
    return {
        "name": model.path.name if os.path.isdir(model.name) else model.name,
        "revision": model.path.name if model.path.parent.name == "snapshots" else None,
        "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
        "parameters": model.parameters,
        "weight_bytes": model.weight_bytes,
        "quantization": model.config.get("quantization"),
        "context": model.context,
    }


def load_average() -> list[float] | None:
    """The load averages of the last 1, 5 and 15 minutes; None where there are none."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


FORMAT = 1

KIND = "macspec bench"

Mask = Callable[[str], str]


def document(
    run: Run,
    found: tuple[Sequence[Cell], Sequence[Compared]],
    command: Sequence[str],
    *,
    kernels: Kernels,
    load: Sequence[float] | None = None,
    energy: str | None = None,
    mask: Mask | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The whole of a measurement, ready for JSON.

    Args:
        found: what ``run.results`` gave.
        load: the machine's load before it began.
        energy: why there are no joules; None where there are.
        mask: include prompts and replies, masked by this; None: no text of either, nor ids.
        more: further entries.
    """
    cells, compared = found
    questions: list[dict[str, Any]] = [
        {
            "id": it.id,
            **named(it.task, "workload", "source", "language", "digest"),
            "prompt_tokens": len(it.ids),
            "max_tokens": it.max_tokens,
            "forced": it.forced is not None,
        }
        for it in run.questions
    ]
    samples = [it.as_dict() for it in run.samples]
    if mask is not None:
        for entry, question in zip(questions, run.questions, strict=True):
            turns = question.task.messages
            entry["prompt"] = [{"role": it["role"], "content": mask(it["content"])} for it in turns]
        for entry, sample in zip(samples, run.samples, strict=True):
            entry["reply"] = mask(sample.written.text)
    return {
        "kind": KIND,
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "ended": run.ended,
        "complete": run.ended != "interrupted",
        "replies": len(run.samples),
        "replies_wanted": run.total,
        "machine": machine(),
        "models": models(run.pair, kernels, run.kv_bits),
        "protocol": run.protocol.as_dict(),
        "baseline": run.baseline,
        "arms": {name: dict(arm.describe()) for name, arm in run.arms.items()},
        "questions": questions,
        "tasks_left_out": run.left_out,
        "costs": run.costs,
        "load_before": None if load is None else list(load),
        "seconds": run.seconds,
        "conditions": [{"at": round(at, 1), **asdict(state)} for at, state in run.conditions],
        "measured_hot": run.hot,
        "not_answered": run.not_answered,
        "energy_reason": energy,
        "cells": [cell.as_dict() for cell in cells],
        "forks": [it.as_dict() for it in compared if it.fork is not None],
        "samples": samples,
        **more,
    }


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        BadOptionError: it cannot be written.
    """
    try:
        write_atomic(path, text, mode=0o666, make_folder=True)
    except OSError as error:
        raise BadOptionError(f"cannot write {path}: {brief(error)}") from None


def load(path: Path) -> dict[str, Any]:
    """A document that was written.

    Raises:
        BadOptionError: it cannot be read, or is something else.
    """
    with reading(path) as record:
        if not isinstance(record, dict) or record.get("kind") != KIND:
            raise ValueError("not a report of macspec bench")
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, not {FORMAT}")
        cells_of(record)
        curve_of(record["costs"])
    return dict(record)


@contextmanager
def reading(path: Path, trouble: str = "cannot be used") -> Iterator[Any]:
    """A file's JSON; whatever is wrong with it or found in it is a ``BadOptionError``."""
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadOptionError(f"cannot read {path}: {brief(error)}") from None
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise BadOptionError(f"{path} {trouble}: {brief(error)}") from None


def cells_of(record: Mapping[str, Any]) -> list[Cell]:
    """The cells of a document; a KeyError, TypeError or ValueError if it is something else."""
    return [Cell.from_dict(cell) for cell in record["cells"]]
