"""Quantize models, or convert them to the format that mlx-lm loads."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..errors import BadOptionError
from ..heads import HeadFiles, head_in, own_head
from ..heads.naming import layers_of
from ..heads.packing import FINE, packed
from .files import broken, locate
from .loading import checked_config
from .progress import size
from .sidecars import MADE_FOR, made_for

# mlx-lm has no annotations, and its package holds a function of the module's name.
_conversion: Any = import_module("mlx_lm.convert")


def convert(
    source: str,
    destination: str,
    *,
    bits: int | None = None,
    head_bits: int | None = None,
    group: int = 64,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Path:
    """Convert a model to the format that mlx-lm loads, or a head; it appears only once it is
    complete. mlx-lm drops the head that a model brings along: it is kept beside the model.

    Without ``bits`` it keeps full precision; ``head_bits`` is for heads; ``group`` weights share a
    scale and a bias; ``dtype`` is float16, bfloat16 or float32 (None: as it is).

    Raises:
        BadOptionError: the destination exists or is too small, or the source is quantized.
        ModelNotFoundError: there is no such source.
        ModelBrokenError: it cannot be loaded or written.
    """
    folder = locate(source, trust_remote_code=trust_remote_code)
    if (head := head_in(source, folder)) is not None:
        return _convert_head(head, destination, head_bits, group)
    config = checked_config(source, folder, trust_remote_code)
    known = config.get("quantization")
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
            if (own := own_head(source, folder, layers_of(config))) is not None:
                fine = None if head_bits is None else max(head_bits, FINE)
                _write_head(own, part / "mtp.safetensors", fine, group)
            part.rename(made)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return made


def _convert_head(head: HeadFiles, destination: str, bits: int | None, group: int) -> Path:
    if any(it.endswith(".scales") for it in head.tensors):
        raise BadOptionError(
            f"{head.name} is already quantized: quantize the original head instead"
        )
    made = Path(destination).expanduser()
    _check_place(made, next(iter(head.tensors.values())).parent, 1.0)
    part = made.with_name(f"{made.name}.unfinished")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with broken(f"{head.name} cannot be converted"):
            part.mkdir()
            _write_head(head, part / "model.safetensors", bits, group)
            config = {MADE_FOR: made_for(head), **head.config}
            if bits is not None:
                config["quantization"] = {"bits": bits, "group_size": group}
            (part / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
            part.rename(made)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return made


def _write_head(head: HeadFiles, file: Path, bits: int | None, group: int) -> None:
    loaded: dict[Path, Any] = {it: mx.load(str(it)) for it in set(head.tensors.values())}
    tensors = {name: loaded[where][name] for name, where in head.tensors.items()}
    mx.save_safetensors(str(file), packed(tensors, bits, group), {"format": "mlx"})


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
