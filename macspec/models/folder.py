"""What a model folder may hold, which may come from anyone: checked before any of it is read.

Nothing here imports MLX.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from ..errors import ModelBrokenError, cause, quoted
from .progress import size

TEMPLATES = "additional_chat_templates"
"""A folder of templates beside the others."""

MEGABYTE = 2**20

READ = (".json", ".safetensors", ".model", ".txt", ".jinja", ".jsonl", ".tiktoken", ".py")
"""Endings of the files that libraries open."""

LARGEST = {
    "tokenizer.json": 64 * MEGABYTE,
    **dict.fromkeys(("config.json", "hf_quant_config.json"), 16 * MEGABYTE),
    **dict.fromkeys(("generation_config.json", "chat_template.json", ".jinja"), MEGABYTE),
    **dict.fromkeys(("tokenizer_config.json", "special_tokens_map.json"), 64 * MEGABYTE),
    **dict.fromkeys(("vocab.json", "added_tokens.json", "merges.txt"), 64 * MEGABYTE),
    **dict.fromkeys(("model.safetensors.index.json", ".model", ".tiktoken"), 64 * MEGABYTE),
}
"""Bytes of a file by its name or ending; at least twice those of the largest models."""

MOST = {
    "layers": 10_000,
    "experts": 100_000,
    "heads": 100_000,
    "labels": 100_000,
    "vocab_size": 100_000_000,
    "hidden_size": 10_000_000,
    "intermediate_size": 100_000_000,
    "head_dim": 1_000_000,
    "groups": 1_000_000,
    "rank": 1_000_000,
    "kernel": 1_000_000,
    "window": 10**12,
    "n_layer": 10_000,
    "n_head": 100_000,
    "d_model": 10_000_000,
    "n_embd": 10_000_000,
}
"""Largest numbers in a configuration by the last part of their names: what sizes memory."""

DEEPEST = 16
"""Levels of a configuration."""


def check_files(name: str, folder: Path) -> None:
    """Make sure that the files that are opened are regular ones, in it or in the hub's cache.

    Raises:
        ModelBrokenError: one is a device, a pipe, or a link out of the folder, or is too large; or
            the folder cannot be read.
    """
    try:
        homes = [home.resolve() for home in _homes(folder)]
        for path in _entries(folder):
            _check_file(name, path, homes)
    except (OSError, RuntimeError) as error:
        raise ModelBrokenError(
            f"{name}: {folder} cannot be read ({cause(error)}): check its permissions"
        ) from error


def _homes(folder: Path) -> Iterator[Path]:
    """Where the files of a folder may be."""
    yield folder
    yield Path(constants.HF_HUB_CACHE)
    if folder.parent.name == "snapshots":
        yield folder.parent.parent  # of a hub's cache elsewhere


def _entries(folder: Path) -> Iterator[Path]:
    for path in (folder, folder / TEMPLATES):
        if path.is_dir():
            yield from (entry for entry in path.iterdir() if entry.suffix in READ)
    if (folder / TEMPLATES).is_symlink():
        yield folder / TEMPLATES


def _check_file(name: str, path: Path, homes: list[Path]) -> None:
    what = quoted(path.name)
    if path.is_symlink():
        target = path.resolve()
        if not any(target.is_relative_to(home) for home in homes):
            raise ModelBrokenError(
                f"{name}: {what} is a link to {quoted(str(target))}, outside of the folder: put "
                "the file itself there"
            )
        if not target.exists():
            return  # Reported by whoever needs it.
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise ModelBrokenError(f"{name}: {what} is a device or a pipe, not a file: remove it")
    most = LARGEST.get(path.name) or LARGEST.get(path.suffix)
    if most is not None and status.st_size > most:
        raise ModelBrokenError(
            f"{name}: {what} has {size(status.st_size)}, and such a file at most {size(most)}: "
            "copy the model again"
        )


def check_sizes(name: str, config: Mapping[str, Any]) -> None:
    """Make sure that no number of a configuration asks for absurd memory, or ModelBrokenError."""
    for key, value in _settings(config):
        most = next((most for end, most in MOST.items() if key.endswith(end)), None)
        if most is None or value is None or isinstance(value, bool | str | list | dict):
            continue
        if not 0 <= value <= most:
            raise ModelBrokenError(
                f"{name}: config.json has {quoted(key)} = {quoted(value)}; it must be from 0 to "
                f"{most}: choose another copy of the model"
            )


def _settings(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """All entries of nested objects."""
    if depth > DEEPEST:
        return
    for key, inner in value.items():
        yield key, inner
        if isinstance(inner, dict):
            yield from _settings(inner, depth + 1)


def identity(folder: Path) -> list[tuple[str, int, int, int]]:
    """What changes when a file of a folder does."""
    found = []
    for path in sorted(_entries(folder)):
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append((path.name, status.st_size, status.st_mtime_ns, status.st_ino))
    return found
