"""The device under MLX: what it is, and whether its compiler works."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx


def backend() -> str:
    """What computes arrays: "Metal", "CUDA" or "CPU"."""
    if not on_gpu():
        return "CPU"
    return "Metal" if mx.metal.is_available() else "CUDA"


def on_gpu() -> bool:
    """True where arrays are computed by Metal or CUDA, False on MLX's CPU backend."""
    return bool(mx.default_device() == mx.Device(mx.gpu))


def on_metal() -> bool:
    """True where arrays are computed by Metal."""
    return backend() == "Metal"


@cache
def prepare() -> str | None:
    """Prepare MLX for this machine, before models are loaded; return why ``mx.compile`` is off.

    MLX's CPU backend builds the kernels of ``mx.compile`` from C++ in the temporary folder. Where
    that fails, every compiled function would raise in the middle of a reply, so one kernel is
    tried first and ``mx.compile`` switched off if it fails; results stay the same.
    """
    if on_gpu():
        return None
    reason = _compile_failure()
    if reason is not None:
        mx.disable_compile()
    return reason


def _compile_failure() -> str | None:
    # Gated MLPs need this very kernel, so for most models the probe costs nothing extra.
    probe = mx.compile(lambda gate, x: gate * mx.sigmoid(gate) * x, shapeless=True)
    row = mx.zeros((1, 2), dtype=mx.bfloat16)
    try:
        mx.eval(probe(row, row))
    except RuntimeError as error:
        return " ".join(str(error).split())[:200]
    # A kernel someone else built earlier loads even where new ones cannot be written.
    names = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
    folder = next((os.environ[name] for name in names if name in os.environ), "/tmp")
    kernels = Path(folder) / "mlx" / version("mlx") / "cpu"
    if kernels.exists() and not os.access(kernels, os.W_OK | os.X_OK):
        return f"{kernels} is not writable"
    return None
