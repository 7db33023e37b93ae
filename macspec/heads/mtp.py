"""Heads for multi-token prediction: Qwen3-Next and later, DeepSeek-V3, GLM-4.5, MiMo, Nemotron 3.

One decoder layer of the target's own kind reads the target's hidden row beside the embedding of the
token that followed, and is applied again to what it puts out itself (Gloeckle et al. 2024,
arXiv:2404.19737; DeepSeek-V3, arXiv:2412.19437).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from ..models.loading import Model
from ..tap import FINAL
from .head import Variant
from .naming import renamed

HIDDEN_FIRST = ("mimo", "inkling")
"""Families whose projection takes the hidden row before the embedding."""

MINUS_ONE = ("qwen3_5", "qwen3_next")
"""Families whose files store the weights of norms minus one."""


class MTP(nn.Module):
    """A head of decoder layers like the target's.

    Args:
        layers: called as ``layer(x, mask, cache)``.
        last: number of the target's last layer.
    """

    name = "mtp"

    def __init__(self, width: int, eps: float, layers: list[Any], last: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_norm = nn.RMSNorm(width, eps)
        self.hidden_norm = nn.RMSNorm(width, eps)
        self.project = nn.Linear(2 * width, width, bias=False)
        self.layers = layers
        self.norm = nn.RMSNorm(width, eps)
        self.wanted = (FINAL, last)
        self.hidden_first = False
        self.before_norm = False
        """Whether it reads the target's rows before the final norm."""
        self.shift = 0.0
        """What was added to the stored weights of its norms."""

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]  # type: ignore[no-untyped-call]

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        return rows[1] if self.before_norm else rows[0]

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Sequence[Any]) -> mx.array:
        parts = [self.embedding_norm(embedded), self.hidden_norm(hidden)]
        x = self.project(mx.concatenate(parts[::-1] if self.hidden_first else parts, axis=-1))
        mask = create_attention_mask(x, cache[0])
        for layer, own in zip(self.layers, cache, strict=True):
            x = layer(x, mask, own)
        normed: mx.array = self.norm(x)
        return normed

    def logits(self, out: mx.array) -> mx.array | None:
        logits: mx.array | None = self.head(out) if "head" in self else None
        return logits

    def normed(self, out: mx.array) -> mx.array:
        return out

    def variants(self) -> Iterator[Variant]:
        names = ("hidden_first", "before_norm", "shift")
        own = (self.hidden_first, self.before_norm, self.shift)
        for values in product((False, True), (False, True), (0.0, 1.0, -1.0)):
            if values != own:
                yield dict(zip(names, values, strict=True))

    def choose(self, variant: Variant) -> None:
        add = variant["shift"] - self.shift
        weights: Any = tree_flatten(self.parameters())  # type: ignore[no-untyped-call]
        norms = [
            (name, weight + add)
            for name, weight in weights
            if weight.ndim == 1 and "norm" in name.split(".")[-2]
        ]
        if add:
            self.load_weights(norms, strict=False)
        for name, value in variant.items():
            setattr(self, name, value)


def build(weights: Mapping[str, mx.array], model: Model, config: Mapping[str, Any]) -> MTP:
    """A head of these tensors for a target.

    Raises:
        ValueError: the tensors do not fit it; the message continues "the head".
    """
    named = renamed(weights)
    target: Any = model.module
    for part in ("embedding_norm", "hidden_norm", "project", "norm"):
        if f"{part}.weight" not in named:
            raise ValueError(f"lacks its {part} weight")
    kinds = make_prompt_cache(target)
    full = [at for at, kind in enumerate(kinds) if type(kind) is KVCache]
    if len(kinds) != len(target.layers) or not full:
        raise ValueError("needs a layer of full attention as its pattern, which the target lacks")
    numbers = sorted({int(it.split(".")[1]) for it in named if it.startswith("layers.")})
    if numbers != [0]:
        raise ValueError(f"has {len(numbers)} layers, of which only one can be run")
    pattern = plain(copy.deepcopy(target.layers[full[-1]]))
    named = _sanitized(named, target, full[-1])
    width = named["norm.weight"].shape[0]
    if (row := width_of(model.config)) not in (None, width):
        raise ValueError(f"is for rows of {width} numbers, and the target's have {row}")
    head = MTP(width, _eps(target), [pattern], len(target.layers) - 1)
    if "head.weight" in named:
        head.head = nn.Linear(width, named["head.weight"].shape[0], bias=False)
    load(head, named)
    family = str(model.config.get("model_type", ""))
    head.hidden_first = family.startswith(HIDDEN_FIRST)
    if family.startswith(MINUS_ONE):
        # Converted files have added the one already; which, only the weights tell.
        means = [float(mx.mean(named[f"{it}.weight"])) for it in ("embedding_norm", "norm")]
        head.choose({"shift": 1.0 if max(means) < 0.5 else 0.0})
    return head


def plain(module: Any) -> Any:
    """A module whose quantized layers are plain ones of the same size."""

    def unquantized(layer: Any) -> Any:
        if isinstance(layer, nn.QuantizedLinear):
            out, packed = layer.weight.shape
            return nn.Linear(packed * 32 // layer.bits, out, bias="bias" in layer)
        if isinstance(layer, QuantizedSwitchLinear):
            experts, out, packed = layer.weight.shape
            size = packed * 32 // layer.bits
            return SwitchLinear(size, out, experts, bias="bias" in layer)
        return layer

    leaves = module.leaf_modules()
    module.update_modules(_mapped(leaves, unquantized))
    return module


def load(head: Any, weights: Mapping[str, mx.array]) -> None:
    """Give a head its tensors, quantized where they are.

    Raises:
        ValueError: they do not fit.
    """

    def quantized(path: str, layer: Any) -> bool | dict[str, int]:
        scales = weights.get(f"{path}.scales")
        if scales is None or not hasattr(layer, "to_quantized"):
            return False
        size = layer.weight.shape[-1]
        bits = weights[f"{path}.weight"].shape[-1] * 32 // size
        return {"group_size": size // scales.shape[-1], "bits": bits}

    nn.quantize(head, class_predicate=quantized)
    own = dict(tree_flatten(head.parameters()))
    for name in sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"lacks {name}" if name in own else f"has an unknown tensor, {name}")
    for name, array in own.items():
        if array.shape != weights[name].shape:
            shape, other = list(weights[name].shape), list(array.shape)
            raise ValueError(f"is for another target: its {name} is {shape} instead of {other}")
    head.load_weights(list(weights.items()))


def _mapped(tree: Any, change: Any) -> Any:
    if isinstance(tree, nn.Module):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_mapped(value, change) for value in tree]
    return tree


def _sanitized(named: dict[str, mx.array], target: Any, pattern: int) -> dict[str, mx.array]:
    """The layer's tensors as mlx-lm converts those of the target's layer ``pattern``."""
    parameters: Any = tree_flatten(target.parameters())
    paths = (path for path, _ in parameters)
    inside = re.compile(rf"(.*layers\.){pattern}\.")
    prefix = next(found[1] for path in paths if (found := inside.match(path)))
    own = {it: array for it, array in named.items() if it.startswith("layers.0.")}
    raw = {f"{prefix}{pattern}.{it[len('layers.0.') :]}": array for it, array in own.items()}
    try:
        converted = target.sanitize(dict(raw))
    except Exception:  # it may ask for tensors of the rest of the model
        converted = raw
    start = f"{prefix}{pattern}."
    kept = {it: array for it, array in named.items() if it not in own}
    layer = {
        f"layers.0.{it[len(start) :]}": array
        for it, array in converted.items()
        if it.startswith(start)
    }
    return {**kept, **(layer or own)}


def _eps(target: Any) -> float:
    """The epsilon of the target's norms."""
    found = (getattr(it, "eps", None) for it in target.modules() if isinstance(it, nn.RMSNorm))
    return next((it for it in found if it is not None), 1e-6)


def width_of(config: Mapping[str, Any]) -> int | None:
    """Numbers in a hidden row, by a target's configuration."""
    nested = config.get("text_config")
    for settings in (config, nested if isinstance(nested, dict) else {}):
        if isinstance(width := settings.get("hidden_size"), int):
            return width
    return None
