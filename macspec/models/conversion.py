"""Quantize models, or convert them to the format that mlx-lm loads."""

from __future__ import annotations

import shutil
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import BadOptionError, ModelBrokenError, brief
from .files import locate
from .loading import checked_config
from .progress import size

# mlx-lm has no annotations, and its package holds a function of the module's name.
_conversion: Any = import_module("mlx_lm.convert")

BITS = (2, 3, 4, 5, 6, 8)
"""Bits of a weight that MLX's affine quantization supports."""

TARGET_BITS = 4
DRAFT_BITS = 8
"""A draft model's bytes are a small share of what a round reads, and each guess that it gets wrong
for lack of precision costs a share of a whole pass of the target."""

GROUP = 64
"""Weights that share a scale and a bias."""


def quantize(
    source: str,
    destination: str,
    *,
    bits: int | None = None,
    draft: bool = False,
    group: int = GROUP,
    trust_remote_code: bool = False,
) -> Path:
    """Quantize a model, with mlx-lm.

    Args:
        source: a folder or a Hugging Face id, in full precision.
        destination: the folder to create.
        bits: of a weight, one of ``BITS``; None: ``TARGET_BITS``, or ``DRAFT_BITS`` for a draft.
        draft: it will be used as a draft model.

    Raises:
        BadOptionError: a value out of range, a destination that exists, or a source that is
            quantized already.
        ModelNotFoundError: there is no such source.
        ModelBrokenError: it cannot be loaded or written.
    """
    bits = bits or (DRAFT_BITS if draft else TARGET_BITS)
    if bits not in BITS:
        raise BadOptionError(f"--bits {bits}: choose one of {', '.join(map(str, BITS))}")
    folder = locate(source, trust_remote_code=trust_remote_code)
    config = checked_config(source, folder, trust_remote_code)
    if (known := config.get("quantization")) is not None:
        of = f" to {known['bits']} bits" if isinstance(known, dict) and "bits" in known else ""
        raise BadOptionError(
            f"{source} is already quantized{of}, and would lose quality: quantize the original "
            "model instead"
        )
    # Scales and biases of 16 bits.
    share = (bits + 32 / group) / 16
    return _made(
        source, folder, destination, share, trust_remote_code, q_bits=bits, q_group_size=group
    )


def convert(
    source: str, destination: str, *, dtype: str | None = None, trust_remote_code: bool = False
) -> Path:
    """Convert a model to the format that mlx-lm loads, in full precision.

    Args:
        source: a folder or a Hugging Face id.
        destination: the folder to create.
        dtype: float16, bfloat16 or float32; None: as it is.

    Raises:
        As ``quantize``.
    """
    folder = locate(source, trust_remote_code=trust_remote_code)
    checked_config(source, folder, trust_remote_code)
    return _made(source, folder, destination, 1.0, trust_remote_code, dtype=dtype)


def _made(
    source: str,
    folder: Path,
    destination: str,
    share: float,
    trust_remote_code: bool,
    **settings: Any,
) -> Path:
    """Convert a folder; the result appears only once it is complete."""
    made = Path(destination).expanduser()
    if made.exists():
        raise BadOptionError(f"{made} exists already: choose another folder, or delete it first")
    if not made.parent.is_dir():
        raise BadOptionError(f"{made.parent} is not a folder: create it first")
    needed = share * sum(file.stat().st_size for file in folder.glob("model*.safetensors"))
    free = shutil.disk_usage(made.parent).free
    if needed > free:
        raise BadOptionError(
            f"{made} needs about {size(needed)}, but only {size(free)} is free there: free some "
            "space, or choose a folder on another disk"
        )
    part = made.with_name(f"{made.name}.unfinished")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with redirect_stdout(sys.stderr):
            _conversion.convert(
                str(folder),
                str(part),
                quantize="q_bits" in settings,
                trust_remote_code=trust_remote_code,
                **settings,
            )
        part.rename(made)
    except Exception as error:
        raise ModelBrokenError(
            f"{source} cannot be converted by mlx-lm ({brief(error)}): choose another model, or an "
            "MLX version of this one"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return made
