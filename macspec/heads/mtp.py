"""Heads for multi-token prediction: Qwen3-Next and later, DeepSeek-V3, GLM-4.5, MiMo, Nemotron 3.

Decoder layers of the target's own kind read the target's hidden row beside the embedding of the
token that followed. A single head is applied again to what it puts out itself; where there is one
for each depth, the next one is (Gloeckle et al. 2024, arXiv:2404.19737; DeepSeek-V3,
arXiv:2412.19437).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from ..models.loading import Model
from ..tap import FINAL
from .guesses import Guesses, Output, chain_output, check_vocabulary, guesses_of
from .head import Variant
from .naming import depths_of, number_of
from .tensors import eps_of, load, plain, width_of

HIDDEN_FIRST = ("mimo", "inkling")
"""Families whose projection takes the hidden row before the embedding."""

MINUS_ONE = ("qwen3_5", "qwen3_next")
"""Families whose files store the weights of norms minus one."""

AFTER_NORM = ("qwen3_5", "qwen3_next")
"""Families that are known to read the target's rows after its final norm."""


class Layers(nn.Module):
    """Decoder layers like the target's, for one depth.

    Args:
        layers: called as ``layer(x, mask, cache)``, each with the cache that it takes.
        eps: of its norms.
    """

    def __init__(self, width: int, eps: float, layers: Sequence[tuple[Any, Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_norm = nn.RMSNorm(width, eps)
        self.hidden_norm = nn.RMSNorm(width, eps)
        self.project = nn.Linear(2 * width, width, bias=False)
        self.layers = [layer for layer, _ in layers]
        self.norm = nn.RMSNorm(width, eps)
        self.hidden_first = False
        self.before_norm = False
        """Whether it reads, and puts out, rows before the final norm."""
        self.guesses: Guesses | None = None
        self._kinds = [kind for _, kind in layers]

    def make_cache(self) -> list[Any]:
        return [copy.deepcopy(kind) for kind in self._kinds if kind is not None]

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Sequence[Any]) -> mx.array:
        parts = [self.embedding_norm(embedded), self.hidden_norm(hidden)]
        x = self.project(mx.concatenate(parts[::-1] if self.hidden_first else parts, axis=-1))
        caches = iter(cache)
        for layer, kind in zip(self.layers, self._kinds, strict=True):
            own = None if kind is None else next(caches)
            window = kind.max_size if isinstance(kind, RotatingKVCache) else None
            # Latent attention adds its mask to scores.
            latent = "embed_q" in layer.get("self_attn", {})
            mask = create_attention_mask(x, own, window_size=window, return_array=latent)
            x = layer(x, mask, own)
        normed: mx.array = x if self.before_norm else self.norm(x)
        return normed

    def output(self, tap: Any) -> Output:
        return chain_output(self.get("head"), self.guesses, self._normed, tap)

    def _normed(self, out: mx.array) -> mx.array:
        normed: mx.array = self.norm(out) if self.before_norm else out
        return normed


class MTP(nn.Module):
    """A head: its layers for each depth, or for the first, to be applied repeatedly.

    Args:
        last: number of the target's last layer.
        settled: whether it is known to read the target's rows after the final norm.
    """

    name = "mtp"

    def __init__(self, depths: list[Layers], last: int, settled: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depths = depths
        self.width = int(depths[0].norm.weight.shape[0])
        self.wanted = (FINAL, last)
        self.shifts = (0.0, 0.0)
        """What was added to the stored weights of its own norms, and of those in its layers."""
        self._settled = settled

    @property
    def guesses(self) -> Guesses | None:
        return self.depths[0].guesses

    @property
    def layers(self) -> list[Any]:
        return [layer for depth in self.depths for layer in depth.layers]

    def embedded(self, tokens: mx.array, embedding: Any) -> mx.array:
        embedded: mx.array = embedding(tokens)
        return embedded

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        return rows[1] if self.depths[0].before_norm else rows[0]

    def alternatives(self) -> Iterator[Variant]:
        first = self.depths[0]
        befores = (first.before_norm,) if self._settled else (False, True)
        own, within = (
            {now, now + _missing(means), now - _surplus(means)}
            for now, means in zip(self.shifts, _means(first), strict=True)
        )
        for before, add, inside in product(befores, sorted(own), sorted(within)):
            yield {**self.reading, "before_norm": before, "shifts": (add, inside)}

    def variants(self) -> Iterator[Variant]:
        adds = (0.0, 1.0, -1.0)
        for first, before, own, within in product((False, True), (False, True), adds, adds):
            if own * within >= 0:
                yield {"hidden_first": first, "before_norm": before, "shifts": (own, within)}

    @property
    def reading(self) -> Variant:
        first = self.depths[0]
        return {
            "hidden_first": first.hidden_first,
            "before_norm": first.before_norm,
            "shifts": self.shifts,
        }

    def choose(self, variant: Variant) -> None:
        own, within = (b - a for a, b in zip(self.shifts, variant["shifts"], strict=True))
        for depth in self.depths:
            depth.hidden_first = variant["hidden_first"]
            depth.before_norm = variant["before_norm"]
            moved = [
                (name, weight + (within if name.startswith("layers.") else own))
                for name, weight in _norms(depth)
            ]
            depth.load_weights(moved, strict=False)
        self.shifts = variant["shifts"]


def _norms(depth: Layers) -> list[tuple[str, mx.array]]:
    """The weights of norms."""
    weights: Any = tree_flatten(depth.parameters())  # type: ignore[no-untyped-call]
    return [(it, array) for it, array in weights if array.ndim == 1 and "norm" in it.split(".")[-2]]


def build(weights: Mapping[str, mx.array], model: Model, config: Mapping[str, Any]) -> MTP:
    """A head of these tensors for a target.

    Raises:
        ValueError: the tensors do not fit it; the message continues "the head".
    """
    target: Any = model.module
    family = str(model.config.get("model_type", ""))
    ids = [it for it in weights if it.endswith(("d2t", "t2d"))]
    for it in weights:
        if it.endswith(("t2d", "embed_tokens.weight")):
            check_vocabulary(weights[it].shape[0], model.width)
    if (told := number_of(model.config, "vocab_size")) is not None:
        check_vocabulary(number_of(config, "vocab_size"), told)
    depths = [_depth(it, model) for it in depths_of({k: weights[k] for k in weights.keys() - ids})]
    numbers = next((weights[it] for it in ids if it.endswith("d2t")), None)
    for depth in depths:
        own = depth.head.weight.shape[0] if "head" in depth else None
        depth.guesses = guesses_of(numbers, own, model.width)
        depth.hidden_first = family in HIDDEN_FIRST
    head = MTP(depths, len(target.layers) - 1, family.startswith(AFTER_NORM))
    if family.startswith(MINUS_ONE):
        # Converted files have added the one already; which, only the weights tell.
        head.choose({**head.reading, "shifts": tuple(map(_missing, _means(depths[0])))})
    return head


def _means(depth: Layers) -> tuple[list[float], list[float]]:
    """The mean of each norm's weights: of its own, and of those in its layers."""
    means = [(it.startswith("layers."), float(mx.mean(array))) for it, array in _norms(depth)]
    return [it for inside, it in means if not inside], [it for inside, it in means if inside]


def _missing(means: Sequence[float]) -> float:
    """What weights of norms seem to lack."""
    return 1.0 if means and median(means) < 0.5 else 0.0


def _surplus(means: Sequence[float]) -> float:
    """What they seem to have too much."""
    return 1.0 if means and median(means) > 1.5 else 0.0


def _depth(named: dict[str, mx.array], model: Model) -> Layers:
    for part in ("embedding_norm", "hidden_norm", "project", "norm"):
        if f"{part}.weight" not in named:
            raise ValueError(f"lacks its {part} weight")
    width = named["norm.weight"].shape[0]
    if (row := width_of(model.config)) not in (None, width):
        raise ValueError(f"is for rows of {width} numbers, and the target's have {row}")
    named = _sanitized(named, model.module)
    numbers = {int(it.split(".")[1]) for it in named if it.startswith("layers.")}
    if not numbers:
        raise ValueError("lacks its layers")
    layers = [_layer(_below(f"layers.{it}.", named), model.module) for it in sorted(numbers)]
    if not any(kind for _, kind in layers):
        raise ValueError("has no layer of attention")
    depth = Layers(width, eps_of(model.module), layers)
    if "head.weight" in named:
        depth.head = nn.Linear(width, named["head.weight"].shape[0], bias=False)
    load(depth, named)
    return depth


def _below(prefix: str, tensors: Mapping[str, mx.array]) -> dict[str, mx.array]:
    return {it[len(prefix) :]: array for it, array in tensors.items() if it.startswith(prefix)}


def _layer(named: Mapping[str, mx.array], target: Any) -> tuple[Any, Any]:
    """A layer for these tensors, of parts that the target's layers have, and the cache it takes."""
    caches = make_prompt_cache(target)
    if len(caches) != len(target.layers):
        caches = [KVCache()] * len(target.layers)  # type: ignore[no-untyped-call]
    unlike: dict[str, tuple[Any, Any]] = {}
    for it, cache in zip(target.layers, caches, strict=True):
        held: Any = tree_flatten(it.parameters())
        unlike[str([(type(cache), name, array.shape) for name, array in held])] = it, cache
    plains = [plain(copy.deepcopy(it)) for it, _ in unlike.values()]
    kinds = [cache for _, cache in unlike.values()]

    def misfits(number: int, part: str) -> int:
        held: Any = tree_flatten(plains[number].parameters())
        shapes = {name: array.shape for name, array in held if name.startswith(part)}
        packed = [name for name in named if name.endswith((".scales", ".biases"))]
        given = {it: a.shape for it, a in named.items() if it.startswith(part) and it not in packed}
        return sum(shapes.get(it) != given.get(it) for it in shapes.keys() | given.keys())

    def nearest(part: str) -> int:
        return min(reversed(range(len(plains))), key=lambda it: misfits(it, part))

    whole = nearest("")
    layer, kind = plains[whole], kinds[whole]
    for part in {it.split(".")[0] for it in named}:
        other = nearest(f"{part}.")
        if misfits(other, f"{part}.") < misfits(whole, f"{part}."):
            layer[part] = copy.deepcopy(plains[other][part])
            kind = kinds[other] if part == "self_attn" else kind
    attends = any(re.search(r"\b(k_proj|qkv_proj|kv_a_proj\w*)\.", it) for it in named)
    if attends and type(kind) not in (KVCache, RotatingKVCache):
        raise ValueError("needs a layer of plain attention as its pattern, which the target lacks")
    return layer, kind if attends else None


def _sanitized(named: dict[str, mx.array], target: Any) -> dict[str, mx.array]:
    """The tensors as mlx-lm converts those of the target's layers; norms as they are."""
    parameters: Any = tree_flatten(target.parameters())
    found = (re.match(r"(.*layers\.)0\.", path) for path, _ in parameters)
    prefix = next(it[1] for it in found if it)
    parts = f"{prefix}0.head."

    def outside(name: str) -> str:
        return prefix + name[len("layers.") :] if name.startswith("layers.") else parts + name

    def inside(name: str) -> str:
        if name.startswith(parts):
            return name[len(parts) :]
        return f"layers.{name[len(prefix) :]}" if name.startswith(prefix) else name

    try:
        converted = target.sanitize({outside(it): array for it, array in named.items()})
    except Exception:  # it may ask for tensors of the rest of the model
        return named
    renamed = {inside(it): array for it, array in converted.items()}
    return {it: named[it] if array.ndim == 1 and it in named else array
            for it, array in renamed.items()}  # fmt: skip
