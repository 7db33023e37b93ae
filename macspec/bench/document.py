"""A measurement as a JSON file: what was found, and everything needed to repeat it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..device import on_metal
from ..errors import BadOptionError, brief
from ..kernels import Kernels
from ..models import Model, Pair
from ..models.machine import unified_memory
from .cells import Cell
from .costs import Costs
from .run import Outcome

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


def backend() -> str:
    """What MLX computes with."""
    if on_metal():
        return "Metal" if mx.metal.is_available() else "CUDA"
    return "CPU"


def models(pair: Pair, kernels: Kernels, kv_bits: int | None) -> dict[str, Any]:
    """The pair."""
    return {
        "target": described(pair.target),
        "draft": None if pair.draft is None else described(pair.draft),
        "draft_off": pair.draft_off,
        "context": pair.context,
        "kv_bits": kv_bits,
        "kernels": kernels.state,
    }


def described(model: Model) -> dict[str, Any]:
    """A model, without the path to a user's folder."""
    config = json.dumps(model.config, sort_keys=True, default=str)
    quantization = model.config.get("quantization")
    return {
        "name": model.path.name if os.path.isdir(model.name) else model.name,
        "revision": model.path.name if model.path.parent.name == "snapshots" else None,
        "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
        "parameters": model.parameters,
        "weight_bytes": model.weight_bytes,
        "quantization": quantization,
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
    outcome: Outcome,
    command: Sequence[str],
    *,
    kernels: Kernels,
    kv_bits: int | None = None,
    load: Sequence[float] | None = None,
    energy: str | None = None,
    mask: Mask | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The whole of a measurement, ready for JSON.

    Args:
        command: the command line.
        load: the machine's load before it began.
        energy: why there are no joules; None where there are.
        mask: prompts and replies are in it too, masked by this; None: no text of either, nor ids.
        more: further entries.
    """
    measurement = outcome.measurement
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "kind": KIND,
        "format": FORMAT,
        "made": made,
        "command": list(command),
        "ended": outcome.ended,
        "complete": outcome.ended != "interrupted",
        "replies": len(outcome.samples),
        "replies_wanted": 0 if measurement is None else measurement.total,
        "machine": machine(),
        "models": models(outcome.pair, kernels, kv_bits),
        "protocol": outcome.protocol.as_dict(),
        "baseline": outcome.baseline,
        "arms": {arm.name: dict(arm.describe()) for arm in outcome.arms},
        "questions": _questions(outcome, mask),
        "tasks_left_out": outcome.left_out,
        "costs": outcome.costs.as_dict(),
        "load_before": None if load is None else list(load),
        "seconds": None if measurement is None else measurement.seconds,
        "conditions": _conditions(outcome),
        "measured_hot": 0 if measurement is None else measurement.hot,
        "not_answered": {} if measurement is None else measurement.left_out,
        "energy_reason": energy,
        "cells": [cell.as_dict() for cell in outcome.cells],
        "forks": _forks(outcome),
        "samples": _samples(outcome, mask),
        **more,
    }


def save(path: Path, record: Mapping[str, Any]) -> None:
    """Write a document, whole or not at all.

    Raises:
        BadOptionError: it cannot be written.
    """
    text = json.dumps(record, indent=1) + "\n"
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        raise BadOptionError(f"cannot write {path}: {brief(error)}") from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """A document of ``save``.

    Raises:
        BadOptionError: it cannot be read, or is something else.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or record.get("kind") != KIND:
            raise ValueError("it is no report of macspec bench")
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, not {FORMAT}")
        cells_of(record)
        costs_of(record)
    except OSError as error:
        raise BadOptionError(f"cannot read {path}: {brief(error)}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadOptionError(f"{path} cannot be used: {brief(error)}") from None
    return record


def cells_of(record: Mapping[str, Any]) -> list[Cell]:
    """The cells of a document.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    return [Cell.from_dict(cell) for cell in record["cells"]]


def costs_of(record: Mapping[str, Any]) -> Costs:
    """The costs of a document.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    return Costs.from_dict(record["costs"])


def _questions(outcome: Outcome, mask: Mask | None) -> list[dict[str, Any]]:
    return [
        {
            "id": it.id,
            "workload": it.workload,
            "source": it.task.source,
            "language": it.task.language,
            "digest": it.task.digest,
            "prompt_tokens": len(it.ids),
            "max_tokens": it.max_tokens,
            "forced": it.forced is not None,
            **({} if mask is None else {"prompt": _masked(it.task.messages, mask)}),
        }
        for it in outcome.questions
    ]


def _masked(messages: Sequence[Mapping[str, str]], mask: Mask) -> list[dict[str, str]]:
    return [{"role": it["role"], "content": mask(it["content"])} for it in messages]


def _conditions(outcome: Outcome) -> list[dict[str, Any]]:
    measurement = outcome.measurement
    found = [] if measurement is None else measurement.conditions
    return [{"at": round(it.at, 1), **asdict(it.state)} for it in found]


def _forks(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {
            "arm": it.sample.arm,
            "question": it.sample.question,
            "temperature": it.sample.temperature,
            "repeat": it.sample.repeat,
            "position": it.fork.position,
            "gap": it.fork.margin,
            "near_tie": it.fork.near_tie,
        }
        for it in outcome.compared
        if it.fork is not None
    ]


def _samples(outcome: Outcome, mask: Mask | None) -> list[dict[str, Any]]:
    return [
        {**it.as_dict(), **({} if mask is None else {"reply": mask(it.written.text)})}
        for it in outcome.samples
    ]
