"""EAGLE heads as SafeAILab and speculators package them.

EAGLE-3 (Li et al. 2025, arXiv:2503.01840) is a layer whose attention reads the embedded token
beside a mix of three of the target's layers, and where there are more layers, those follow as in
any llama. Its own output takes that mix's place in the next step. Its vocabulary may be a part of
the target's. EAGLE-1 and 2 (arXiv:2401.15077, 2406.16858) mix
the embedded token with the row that enters the target's output head, and guess the next such row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.base import scaled_dot_product_attention
from mlx_lm.models.cache import KVCache, create_attention_mask
from mlx_lm.models.rope_utils import initialize_rope

from ..models.loading import Model
from ..tap import FINAL
from .guesses import Guesses, Output, chain_output, check_vocabulary, guesses_of
from .head import Variant
from .tensors import joined, load, width_of

_LAYER = re.compile(r"layers\.(\d{1,2})\.")


class _Attention(nn.Module):
    """Attention whose input may be wider than its output."""

    def __init__(self, wide: int, width: int, settings: Mapping[str, Any], normed: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heads = int(settings["num_attention_heads"])
        self.kv_heads = int(settings.get("num_key_value_heads") or self.heads)
        self.size = size = int(settings.get("head_dim") or width // self.heads)
        self.scale = size**-0.5
        self.window = window_of(settings)
        """Newest positions that a row attends to, itself included; None: all."""
        self.q_proj = nn.Linear(wide, self.heads * size, bias=False)
        self.k_proj = nn.Linear(wide, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(wide, self.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, width, bias=False)
        if normed:
            eps = float(settings.get("rms_norm_eps", 1e-6))
            self.q_norm, self.k_norm = nn.RMSNorm(size, eps), nn.RMSNorm(size, eps)
        rope = settings.get("rope_parameters") or settings.get("rope_scaling")
        self.rope = initialize_rope(
            size,
            base=float((rope or {}).get("rope_theta") or settings.get("rope_theta") or 10000.0),
            traditional=False,
            scaling_config=rope,
            max_position_embeddings=settings.get("max_position_embeddings"),
        )

    def __call__(self, x: mx.array, cache: Any) -> mx.array:
        length, start = x.shape[1], cache.offset
        seen = start if self.window is None else min(start, self.window - 1)
        window = self.window if self.window and seen + length > self.window else None
        mask = create_attention_mask(length, seen, return_array=False, window_size=window)
        rows = self.qkv_proj(x).reshape(1, length, -1, self.size)
        turned, values = mx.split(rows, [self.heads + self.kv_heads], axis=2)
        if "q_norm" in self:
            queries, keys = mx.split(turned, [self.heads], axis=2)
            turned = mx.concatenate([self.q_norm(queries), self.k_norm(keys)], axis=2)
        turned = self.rope(turned.transpose(0, 2, 1, 3), offset=start)
        queries, keys = mx.split(turned, [self.heads], axis=1)
        keys, values = cache.update_and_fetch(keys, values.transpose(0, 2, 1, 3))
        keys, values = keys[:, :, start - seen :], values[:, :, start - seen :]
        out = scaled_dot_product_attention(
            queries, keys, values, cache=cache, scale=self.scale, mask=mask
        )
        mixed: mx.array = self.o_proj(out.transpose(0, 2, 1, 3).reshape(1, length, -1))
        return mixed


class _MLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = mx.split(self.gate_up_proj(x), 2, axis=-1)
        out: mx.array = self.down_proj(nn.silu(gate) * up)
        return out


class _Layer(nn.Module):
    """A llama's layer; the first may read the embedded token beside the row."""

    def __init__(
        self, wide: int, width: int, settings: Mapping[str, Any], normed: bool, first: bool
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        eps = float(settings.get("rms_norm_eps", 1e-6))
        self.self_attn = _Attention(wide, width, settings, normed)
        self.mlp = _MLP(width, int(settings["intermediate_size"]))
        if wide > width:
            self.hidden_norm = nn.RMSNorm(width, eps)
        if wide > width or not first:
            self.input_layernorm = nn.RMSNorm(width, eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)

    def __call__(self, x: mx.array, residual: mx.array, cache: Any) -> mx.array:
        """Rows for what its attention reads, and for what is added to."""
        out = residual + self.self_attn(x, cache)
        done: mx.array = out + self.mlp(self.post_attention_layernorm(out))
        return done


class Eagle(nn.Module):
    """A head of few layers.

    Args:
        width: of its own rows.
        settings: of its layers, named as a llama's configuration names them.
        taps: the target's layers that it reads; none where it is an EAGLE-1.
        normed: whether its attention norms queries and keys, for each of its layers.
    """

    name = "eagle"

    def __init__(
        self, width: int, settings: Mapping[str, Any], taps: Sequence[int], normed: Sequence[bool]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        eps = float(settings.get("rms_norm_eps", 1e-6))
        self._taps = tuple(taps)
        self.wanted = (FINAL, *taps)
        self.width = width
        wide = 2 * width if taps else width
        self.layers = [
            _Layer(width if at else wide, width, settings, it, first=not at)
            for at, it in enumerate(normed)
        ]
        if taps:
            self.norm = nn.RMSNorm(width, eps)
        self.norm_before_residual = bool(settings.get("norm_before_residual", False))
        self.norm_output = bool(settings.get("norm_output", False))
        """Whether the next step takes the output after its norm."""
        self.hidden_first = False
        """Whether it reads the row before the embedded token."""
        self.scale = 1.0
        """What embedded tokens are multiplied with; where a norm follows, that changes nothing."""
        self._scales: tuple[float, ...] = (1.0,)
        """What embedded tokens may have been multiplied with in training."""
        self.guesses: Guesses | None = None

    @property
    def depths(self) -> list[Eagle]:
        return [self]

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]  # type: ignore[no-untyped-call]

    def embedded(self, tokens: mx.array, embedding: Any) -> mx.array:
        own = self.embed_tokens if "embed_tokens" in self else embedding
        embedded: mx.array = own(tokens)
        return embedded

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        if len(rows) == 1:
            return rows[0]
        parts = list(rows[1:])
        if "fc_norm" in self:
            parts = [norm(row) for norm, row in zip(self.fc_norm, parts, strict=True)]
        fused = mx.concatenate(parts, axis=-1)
        if "input_norm" in self:
            fused = self.input_norm(fused)
        entered: mx.array = self.fc(fused)
        return entered

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Sequence[Any]) -> mx.array:
        first, *others = self.layers
        if "hidden_norm" in first:
            normed = first.hidden_norm(hidden)
            x = self._pair(first.input_layernorm(embedded), normed)
            residual = normed if self.norm_before_residual else hidden
        else:
            x = residual = self.fc(self._pair(embedded * self.scale, hidden))
        out = first(x, residual, cache[0])
        for layer, own in zip(others, cache[1:], strict=True):
            out = layer(layer.input_layernorm(out), out, own)
        stepped: mx.array = self.norm(out) if self.norm_output else out
        return stepped

    def _pair(self, embedded: mx.array, hidden: mx.array) -> mx.array:
        pair = [hidden, embedded] if self.hidden_first else [embedded, hidden]
        return mx.concatenate(pair, axis=-1)

    def move(self, by: int) -> None:
        """Read other layers of the target, later by so many than its files say."""
        self.wanted = (FINAL, *(it + by for it in self._taps))

    def output(self, tap: Any) -> Output:
        return chain_output(self.get("lm_head"), self.guesses, self._normed, tap)

    def _normed(self, out: mx.array) -> mx.array:
        normed: mx.array = self.norm(out) if "norm" in self and not self.norm_output else out
        return normed

    @property
    def reading(self) -> Variant:
        names = "norm_before_residual", "hidden_first", "scale"
        return {it: getattr(self, it) for it in names}

    def alternatives(self) -> Iterator[Variant]:
        for scale in self._scales:
            yield {**self.reading, "scale": scale}

    def variants(self) -> Iterator[Variant]:
        befores = (False, True) if "norm" in self else (self.norm_before_residual,)
        for before, first, scale in product(befores, (False, True), self._scales):
            yield {"norm_before_residual": before, "hidden_first": first, "scale": scale}

    def choose(self, variant: Variant) -> None:
        for name, value in variant.items():
            setattr(self, name, value)


def window_of(settings: Mapping[str, Any]) -> int | None:
    """The sliding window of a head, where its files say that its layers have one."""
    # Elsewhere a window is the target's.
    sliding = set(settings.get("layer_types") or ()) == {"sliding_attention"}
    window = settings.get("sliding_window")
    return int(window) if sliding and window else None


def taps_of(config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """The target's layers that a head reads: those that its files name, or the usual ones."""
    own = config.get("eagle_config") or {}
    first = int("speculators_model_type" in config)  # there 0 is what enters the first layer
    for settings in (config, own):
        named = settings.get("eagle_aux_hidden_state_layer_ids")
        if named:
            return tuple(int(it) - first for it in named)
    return 1, layers // 2 - 1, layers - 4


def build(weights: Mapping[str, mx.array], model: Model, config: Mapping[str, Any]) -> Eagle:
    """A head of these tensors for a target.

    Raises:
        ValueError: they do not fit it; the message continues "the head".
    """
    named = {_renamed(it): array for it, array in weights.items()}
    numbers, known = named.pop("d2t", None), named.pop("t2d", None)
    if "mask_hidden" in named:
        raise ValueError("guesses several tokens at once (P-EAGLE), which macspec cannot do")
    if "fc.weight" not in named:
        raise ValueError("lacks fc.weight")
    width, fused = named["fc.weight"].shape
    if (scales := named.get("fc.scales")) is not None:
        fused = scales.shape[-1] * int(config.get("quantization", {}).get("group_size", 64))
    module: Any = model.module
    layers = len(module.layers)
    third = "layers.0.hidden_norm.weight" in named
    taps = taps_of(config, layers) if third else ()
    if not all(0 <= it < layers for it in taps):
        raise ValueError(f"reads layers {list(taps)} of a target that has {layers}")
    settings = {**config, **(config.get("transformer_layer_config") or {})}
    row = width_of(model.config)
    if third and row is not None and fused != row * len(taps):
        raise ValueError(f"reads {fused} numbers of {len(taps)} layers of {row}")
    if not third and not width == (row or width) == fused / 2:
        raise ValueError(f"is for rows of {width} numbers, and the target's have {row}")
    for key in ("num_attention_heads", "intermediate_size"):
        if key not in settings:
            raise ValueError(f"has no {key} in its config.json")
    head = Eagle(width, settings, taps, _normed(named))
    head.fc = nn.Linear(fused, width, bias=False)
    eps = float(settings.get("rms_norm_eps", 1e-6))
    if "input_norm.weight" in named:
        head.input_norm = nn.RMSNorm(fused, eps)
    if "fc_norm.0.weight" in named:
        head.fc_norm = [nn.RMSNorm(fused // len(taps), eps) for _ in taps]
    embedding = named.pop("embed_tokens.weight", None)
    for ids in (known, embedding):
        check_vocabulary(None if ids is None else ids.shape[0], model.width)
    own = named["lm_head.weight"].shape[0] if "lm_head.weight" in named else None
    if own is not None:
        head.lm_head = nn.Linear(width, own, bias=False)
    head.guesses = guesses_of(numbers, own, model.width)
    if third and width != (row or width):
        if embedding is None:
            raise ValueError(f"is for rows of {width} numbers, and the target's have {row}")
        # Else it is a copy of the target's.
        head.embed_tokens = nn.Embedding(embedding.shape[0], width)
        named["embed_tokens.weight"] = embedding
    if not third and str(model.config.get("model_type", "")).startswith("gemma"):
        head._scales = (1.0, width**0.5)
    modules: Any = head.named_modules()  # type: ignore[no-untyped-call]
    for path, module in modules:
        if f"{path}.bias" in named and isinstance(module, nn.Linear):
            module.bias = mx.zeros(module.weight.shape[0])
    load(head, named)
    for layer in head.layers:
        attention, mlp = layer.self_attn, layer.mlp
        attention.qkv_proj = joined([attention.pop(f"{part}_proj") for part in "qkv"])
        mlp.gate_up_proj = joined([mlp.pop(f"{part}_proj") for part in ("gate", "up")])
    return head


def _normed(named: Mapping[str, mx.array]) -> list[bool]:
    """Whether the attention of each layer norms queries and keys."""
    found = (_LAYER.match(it) for it in named)
    count = 1 + max((int(it[1]) for it in found if it), default=0)
    return [f"layers.{it}.self_attn.q_norm.weight" in named for it in range(count)]


def _renamed(name: str) -> str:
    name = name.removeprefix("model.")
    return name.replace("midlayer.", "layers.0.", 1)
