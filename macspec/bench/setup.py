"""What a measurement was made on and with, as far as it is needed to repeat it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mlx.core as mx

from ..device import on_metal
from ..kernels import Kernels
from ..models import Model, Pair
from ..models.machine import unified_memory

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


def load() -> list[float] | None:
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
