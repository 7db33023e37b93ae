"""The safetensors files of a model folder, checked without reading a tensor.

Format: https://github.com/huggingface/safetensors#format: eight bytes with the length of the
header, a JSON header that gives every tensor's type, shape and byte range, then the bytes.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

from ..errors import ModelBrokenError, brief

HEADER_LIMIT = 100_000_000
"""Longest header in bytes that the format allows."""

AGAIN = "copy it again, or for a Hugging Face id: hf download ID --force-download"

BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
}


def check_weights(name: str, folder: Path) -> None:
    """Make sure that a folder's weights are there and whole.

    Args:
        name: what the user calls the model.
        folder: a model folder; mlx-lm reads its ``model*.safetensors``.

    Raises:
        ModelBrokenError: no such file, one that the index names is missing, or one is damaged.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelBrokenError(without_weights(name, [file.name for file in folder.iterdir()]))
    if any(sign in str(folder) for sign in "[]*?"):
        raise ModelBrokenError(
            f"{name}: mlx-lm finds no weights in a folder whose path holds [ ] * or ?: rename it"
        )
    held: set[str] = set()
    for file in files:
        try:
            held.update(read_header(file))
        except OSError as error:
            raise ModelBrokenError(
                f"{name}: {file.name} cannot be read ({brief(error)}): check its permissions"
            ) from error
        except ValueError as error:
            raise ModelBrokenError(f"{name}: {file.name} {error}: {AGAIN}") from error
    if absent := _absent_shards(name, folder, held):
        raise ModelBrokenError(
            f"{name}: {', '.join(absent[:3])}{' and more' if len(absent) > 3 else ''} of "
            f"model.safetensors.index.json is missing: {AGAIN}"
        )


def without_weights(name: str, files: list[str]) -> str:
    """Why a folder or repository with these files cannot be loaded, and what to do instead."""
    advice = "choose a safetensors or MLX version of it (many are at hf.co/mlx-community)"
    endings = {Path(file).suffix.lower() for file in files}
    if ".safetensors" in endings:
        return f"{name}: no file is named model*.safetensors, which is what mlx-lm loads: {advice}"
    if ".gguf" in endings:
        return f"{name} is a GGUF model, which macspec does not load: {advice}"
    if endings & {".bin", ".pt", ".pth", ".ckpt"}:
        return f"{name} has only PyTorch weights, which macspec does not load: {advice}"
    return f"{name} has no weights (model*.safetensors): {advice}"


def read_header(file: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by name.

    Raises:
        ValueError: the file is not whole; the message continues a sentence about the file.
        OSError: the file cannot be read.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = int.from_bytes(start, "little")
        if start == b"version ":
            raise ValueError("is a Git LFS pointer and not the weights (git lfs pull fetches them)")
        if size < 8 or length > size - 8:
            raise ValueError(f"is cut off: it ends within its header, after {size} bytes")
        if length > HEADER_LIMIT:
            raise ValueError("is not a safetensors file: its header would be over 100 MB")
        text = stream.read(length)
    try:
        header = json.loads(text)
        tensors = {key: tensor for key, tensor in header.items() if key != "__metadata__"}
        ends = [_end(key, tensor) for key, tensor in tensors.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"has a damaged header ({brief(error)})") from error
    wanted = 8 + length + max(ends, default=0)
    if size < wanted:
        raise ValueError(f"is cut off: {size} bytes of {wanted}")
    if size > wanted:
        raise ValueError(f"is damaged: {size} bytes where its header accounts for {wanted}")
    return tensors


def _end(name: str, tensor: dict[str, Any]) -> int:
    """The byte after a tensor's last, which its type and shape must agree with."""
    begin, end = (int(offset) for offset in tensor["data_offsets"])
    bits = BITS.get(tensor["dtype"])
    if not 0 <= begin <= end or (bits and (end - begin) * 8 != bits * prod(tensor["shape"])):
        raise ValueError(f"the size of {name} does not follow from its type and shape")
    return end


def _absent_shards(name: str, folder: Path, held: set[str]) -> list[str]:
    """Files that the index names and that are gone, if a tensor is gone with them.

    Folders whose shards were merged often keep the old index; those are whole.
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        shards = json.loads(index.read_bytes())["weight_map"]
        lost = {str(shard) for tensor, shard in shards.items() if tensor not in held}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelBrokenError(
            f"{name}: {index.name} cannot be read ({brief(error)}): {AGAIN}"
        ) from error
    return sorted(shard for shard in lost if not (folder / shard).is_file())
