"""What files call the tensors of heads, and which kind of head they are. Needs no MLX."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..choices import BLOCKS
from ..models.files import broken, read_header
from .blockform import packaging_of

T = TypeVar("T")

PARTS: Mapping[str, str] = {
    "fc": "project",
    "eh_proj": "project",
    "input_proj": "project",
    "pre_fc_norm_embedding": "embedding_norm",
    "enorm": "embedding_norm",
    "token_layernorm": "embedding_norm",
    "pre_fc_norm_hidden": "hidden_norm",
    "hnorm": "hidden_norm",
    "hidden_layernorm": "hidden_norm",
    "norm": "norm",
    "shared_head.norm": "norm",
    "shared_head_norm": "norm",
    "final_layernorm": "norm",
    "shared_head.head": "head",
    "lm_head": "head",
    "embed_tokens": "",
}
"""What packagings call the parts around the layers of an MTP head; the last is a copy of the
target's."""

BLOCK = frozenset(("fc.weight", "hidden_norm.weight", "layers.0.self_attn.k_norm.weight"))
"""Tensors that every block drafter has, and no other head."""

FIRST = frozenset(("fc.weight", "layers.0.self_attn.q_proj.weight", "layers.0.mlp.up_proj.weight"))
"""Tensors of EAGLE-1 and 2, which have no norms around them, unlike MTP heads."""

EAGLES = ("eagle3", "peagle")
"""What speculators calls them; those that guess several tokens at once are refused later."""

SHARED = frozenset(("pre_projection.weight", "post_projection.weight"))
"""Tensors of heads that attend to the target's own keys and values, and of no other."""

_MODEL = r"^(?:(?:model|language_model)\.)"
_PREFIX = re.compile(rf"{_MODEL}*(?:mtp\.|mtp_(?=layers\.\d+\.))?")
_ONLY = re.compile(r"^mtp_block\.")
_LAYER = re.compile(r"^(?:layers\.)?(\d+)\.(.*)$")

_BACKBONE = re.compile(r"^(?:model\.|language_model\.)+layers\.0\.")
_OWN = re.compile(r"^(?:\w+\.)*(?:mtp\.|mtp_layers\.)|\.eh_proj\.")


def kind_of(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Which kind of head a folder with these tensors is; None: none, but a model of its own."""
    block = {it.removeprefix("model.") for it in names}
    if block >= BLOCK:
        return "dspark" if "markov_head.markov_w1.weight" in block else "dflash"
    if block >= SHARED:
        return "mtp"
    if any(map(_BACKBONE.match, names)):
        return None
    if any(it.startswith("midlayer.") for it in names):
        return "eagle"
    if config.get("speculators_model_type") in EAGLES or "eagle_config" in config:
        return "eagle"
    if block >= FIRST and not any("norm_" in it or it.endswith("hnorm.weight") for it in names):
        return "eagle"
    depths = depths_of(dict.fromkeys(names))
    if depths and depths[0].keys() >= {"project.weight", "hidden_norm.weight"}:
        return "mtp"
    return "eagle" if "d2t" in names else None


@dataclass(frozen=True)
class HeadFiles:
    """A head on the disk."""

    name: str
    """What the user typed, or the target's name with what it brought along."""
    kind: str
    """The drafting method."""
    config: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, Path] = field(repr=False)
    """The file of each tensor."""

    @property
    def assists(self) -> bool:
        """Whether it attends to the target's own keys and values."""
        return self.tensors.keys() >= SHARED

    @property
    def packaging(self) -> str | None:
        """Who packaged it, where that tells how it is to be read."""
        if self.assists:
            return "Gemma 4 assistant"
        return packaging_of(self.config, self.tensors) if self.kind in BLOCKS else None


def head_in(name: str, folder: Path) -> HeadFiles | None:
    """The head that a folder holds; None where it holds something else.

    Raises:
        ModelBrokenError: a file is damaged.
    """
    tensors = _tensors(name, folder)
    config: Any = {}
    if (folder / "config.json").is_file():
        with broken(f"{name}: config.json cannot be read"):
            config = json.loads((folder / "config.json").read_bytes())
    config = config if isinstance(config, dict) else {}
    kind = kind_of(config, tensors)
    return None if kind is None else HeadFiles(name, kind, config, tensors)


def own_head(name: str, folder: Path, layers: int) -> HeadFiles | None:
    """The head that a target's folder brings along; None without one.

    Args:
        layers: how many the target has; a head may count on from there.
    """
    files = _tensors(name, folder)
    tensors = {tensor: files[tensor] for tensor in own_tensors(files, layers)}
    return HeadFiles(f"of {name}", "mtp", {}, tensors) if tensors else None


def own_tensors(names: Collection[str], layers: int) -> list[str]:
    """Those of a checkpoint's tensors that are its own head; none where they make no head.

    Args:
        layers: how many the model has; a head may count on from there.
    """
    numbered = re.compile(r"^(?:model\.|language_model\.)+layers\.(\d+)\.")
    found = [
        it
        for it in names
        if _OWN.search(it) or ((at := numbered.match(it)) and int(at[1]) >= layers)
    ]
    return found if kind_of({}, found) == "mtp" else []


def layers_of(config: Mapping[str, Any]) -> int:
    """How many layers a model has, by its configuration; a huge number where that does not say."""
    layers = number_of(config, "num_hidden_layers")
    return sys.maxsize if layers is None else layers


def number_of(config: Mapping[str, Any], key: str) -> int | None:
    """A setting that is a whole number, of a model or of its text model."""
    nested = config.get("text_config")
    for settings in (config, nested if isinstance(nested, dict) else {}):
        if isinstance(found := settings.get(key), int):
            return found
    return None


def _tensors(name: str, folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with broken(f"{name}: {file.name} cannot be read"):
            found |= dict.fromkeys(read_header(file), file)
    return found


def depths_of(weights: Mapping[str, T]) -> list[dict[str, T]]:
    """The tensors of an MTP head for each depth, under the names that ``heads.mtp`` has for them.

    A layer with a projection of its own begins a depth, which later layers without one continue.
    Where all layers share a projection, each is a depth.
    """
    layers: dict[int, dict[str, T]] = {}
    shared: dict[str, T] = {}
    for name, array in weights.items():
        rest = _ONLY.sub("layers.0.", _PREFIX.sub("", name, count=1))
        layer = _LAYER.match(rest)
        parts = shared if layer is None else layers.setdefault(int(layer[1]), {})
        rest = rest if layer is None else layer[2]
        part = next((it for it in PARTS if rest.startswith(f"{it}.")), None)
        if part is None or (part == "norm" and layer is not None):
            parts[f"layers.0.{rest}"] = array
        elif PARTS[part]:
            parts[PARTS[part] + rest[len(part) :]] = array
    depths: list[dict[str, T]] = []
    own = 0
    for _, parts in sorted(layers.items()):
        own += 1
        if not depths or "project.weight" in parts or "project.weight" in shared:
            depths.append(dict(shared))
            own = 0
        depths[-1] |= {re.sub(r"^layers\.0", f"layers.{own}", it): a for it, a in parts.items()}
    return depths or ([shared] if shared else [])
