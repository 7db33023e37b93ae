"""Quantize models, or convert them to the format that mlx-lm loads."""

from __future__ import annotations

import shutil
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from .files import broken, locate
from .loading import checked_config
from .progress import size

# mlx-lm has no annotations, and its package holds a function of the module's name.
_conversion: Any = import_module("mlx_lm.convert")


def convert(
    source: str,
    destination: str,
    *,
    bits: int | None = None,
    group: int = 64,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Path:
    """Convert a model to the format that mlx-lm loads; it appears only once it is complete.

    Without ``bits`` it keeps full precision; ``group`` weights share a scale and a bias; ``dtype``
    is float16, bfloat16 or float32 (None: as it is).

    Raises:
        BadOptionError: the destination exists or is too small, or the source is quantized.
        ModelNotFoundError: there is no such source.
        ModelBrokenError: it cannot be loaded or written.
    """
    folder = locate(source, trust_remote_code=trust_remote_code)
    known = checked_config(source, folder, trust_remote_code).get("quantization")
    if bits is not None and known is not None:
        of = f" to {known['bits']} bits" if isinstance(known, dict) and "bits" in known else ""
        raise BadOptionError(
            f"{source} is already quantized{of}, and would lose quality: quantize the original "
            "model instead"
        )
    made = Path(destination).expanduser()
    # Scales and biases of 16 bits.
    _check_place(made, folder, 1.0 if bits is None else (bits + 32 / group) / 16)
    part = made.with_name(f"{made.name}.unfinished")
    shutil.rmtree(part, ignore_errors=True)
    advice = "choose another model, or an MLX version of this one"
    try:
        with broken(f"{source} cannot be converted by mlx-lm", advice):
            with redirect_stdout(sys.stderr):
                _conversion.convert(
                    str(folder),
                    str(part),
                    quantize=bits is not None,
                    q_bits=bits,
                    q_group_size=group,
                    dtype=dtype,
                    trust_remote_code=trust_remote_code,
                )
            part.rename(made)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return made


def _check_place(made: Path, source: Path, share: float) -> None:
    """Make sure that ``share`` of the source's weights can be written to a new folder."""
    if made.exists():
        raise BadOptionError(f"{made} exists already: choose another folder, or delete it first")
    if not made.parent.is_dir():
        raise BadOptionError(f"{made.parent} is not a folder: create it first")
    needed = share * sum(file.stat().st_size for file in source.glob("model*.safetensors"))
    free = shutil.disk_usage(made.parent).free
    if needed > free:
        raise BadOptionError(
            f"{made} needs about {size(needed)}, but only {size(free)} is free there: free some "
            "space, or choose a folder on another disk"
        )
