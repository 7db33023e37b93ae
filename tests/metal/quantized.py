"""Small quantized models, pairs of them with the built-in tokenizer, and kernels for those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import llama

from macspec import load_pair
from macspec.cache import ModelCache
from macspec.metal.dispatch import MetalKernels
from macspec.metal.outcomes import Outcome
from macspec.metal.variants import variants_for
from macspec.models import Pair

FASTER = Outcome(None, seconds=1.0, mlx_seconds=2.0)


def model(
    *,
    vocabulary: int = 61,
    tied: bool = True,
    bits: int = 4,
    layers: int = 2,
    seed: int = 1,
    dtype: mx.Dtype = mx.float32,
) -> Any:
    """A llama of 64 by 128 with heads of 64, two for one of keys."""
    mx.random.seed(seed)
    module = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=64,
            num_hidden_layers=layers,
            intermediate_size=128,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=64,
            rms_norm_eps=1e-5,
            vocab_size=vocabulary,
            tie_word_embeddings=tied,
            attention_bias=not tied,
        )
    )
    # Flat weights say the same to every prompt.
    for name, weight in nn.utils.tree_flatten(module.parameters()):
        if weight.ndim == 2 and "embed" not in name:
            module.update(nn.utils.tree_unflatten([(name, weight * 3)]))
    module.set_dtype(dtype)
    nn.quantize(module, group_size=32, bits=bits)
    module.eval()
    mx.eval(module.parameters())
    return module


def pair(**options: Any) -> Pair:
    """A target and a draft model of this kind, with the built-in pair's tokenizer."""
    built_in = load_pair(draft="built-in", context=256)
    assert built_in.draft is not None
    target = model(vocabulary=built_in.vocabulary, seed=1, **options)
    draft = model(vocabulary=built_in.vocabulary, seed=1, **{**options, "layers": 1})
    return replace(
        built_in,
        target=replace(built_in.target, module=target, width=built_in.vocabulary),
        draft=replace(built_in.draft, module=draft, width=built_in.vocabulary),
        head=None,
    )


def all_faster(pair: Pair, **how: Any) -> MetalKernels:
    found, asked = variants_for(pair, **how)
    return MetalKernels(pair.target.module, dict.fromkeys(asked, FASTER), found.unsupported)


def places(module: Any) -> list[Any]:
    """Everything that a pass changes."""
    return [*layers(module), bound()]


def layers(node: Any) -> list[Any]:
    children = enumerate(node) if isinstance(node, list) else node.items()
    found = []
    for _, child in children:
        found.append(id(child))
        if isinstance(child, dict | list):
            found.extend(layers(child))
    return found


def bound() -> Any:
    return llama.scaled_dot_product_attention


def logits(module: Any, rows: int = 4) -> mx.array:
    tokens = mx.arange(rows)[None] % 61
    out: mx.array = module(tokens, cache=ModelCache(module).layers)
    mx.eval(out)
    return out
