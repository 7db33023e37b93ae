"""From files to a head: which kind it is, and whether it fits its target."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from ..errors import ModelBrokenError, PairMismatchError
from ..models.files import broken, read_header
from . import eagle, mtp

KINDS: Mapping[str, Any] = {"mtp": mtp.build, "eagle": eagle.build}
"""How a head of each kind is built from its tensors."""

_BACKBONE = re.compile(r"^(?:model\.|language_model\.)+layers\.0\.")
_OWN = re.compile(r"^(?:\w+\.)?(?:mtp\.|mtp_layers\.)|\.eh_proj\.")


@dataclass(frozen=True, eq=False)
class LoadedHead:
    """A head with what is known about it."""

    name: str
    """What the user typed, or that it came with the target."""
    path: Path
    kind: str
    module: Any = field(repr=False)
    parameters: int
    weight_bytes: int


def kind_of(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Which kind of head a folder with these tensors is; None: none, but a model of its own."""
    if any(map(_BACKBONE.match, names)):
        return None
    if "d2t" in names or any(it.startswith("midlayer.") for it in names):
        return "eagle"
    if config.get("speculators_model_type") == "eagle3" or "eagle_config" in config:
        return "eagle"
    named = mtp.renamed(dict.fromkeys(names))  # type: ignore[arg-type]
    return "mtp" if {"project.weight", "hidden_norm.weight"} <= named.keys() else None


def tensors_of(folder: Path) -> dict[str, Path]:
    """The names of the tensors of a folder, and the file that each is in.

    Raises:
        ModelBrokenError: a file is damaged.
    """
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            found |= dict.fromkeys(read_header(file), file)
        except ValueError as error:
            raise ModelBrokenError(f"{folder.name}: {file.name} {error}") from error
    return found


def own_tensors(folder: Path, layers: int) -> dict[str, Path]:
    """The tensors of a head that a target's folder brings along, and their files.

    Args:
        layers: how many the target has; a head counts on from there.
    """
    tensors = tensors_of(folder)
    more = re.compile(rf"^(?:\w+\.)*layers\.{layers}\.")
    found = {it: file for it, file in tensors.items() if _OWN.match(it) or more.match(it)}
    return found if kind_of({}, found) == "mtp" else {}


def open_head(
    name: str, folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Path], target: Any
) -> LoadedHead:
    """Load a head; its weights are read when it first runs.

    Args:
        tensors: its tensors and their files.
        target: the module that it is for.

    Raises:
        ModelBrokenError: a file cannot be read.
        PairMismatchError: it does not fit the target.
    """
    kind = kind_of(config, tensors)
    if kind is None:
        raise ModelBrokenError(f"{name} is no head of a kind that macspec knows: choose another")
    with broken(f"{name}: its weights cannot be read"):
        files: dict[Path, Any] = {it: mx.load(str(it)) for it in set(tensors.values())}
        weights = {it: files[file][it] for it, file in tensors.items()}
    try:
        module = KINDS[kind](weights, target, config)
    except ValueError as error:
        raise PairMismatchError(f"{name} cannot draft for this target: the head {error}") from error
    arrays = [array for _, array in tree_flatten(module.parameters())]
    return LoadedHead(
        name=name,
        path=folder,
        kind=kind,
        module=module,
        parameters=sum(array.size for array in arrays),
        weight_bytes=sum(array.nbytes for array in arrays),
    )
