"""Random models of a few kilobytes with plain caches, one for each way to hold positions."""

from __future__ import annotations

from functools import cache
from typing import Any

from architectures import ARCHITECTURES, VOCABULARY
from tinymodels import built

__all__ = ["LATENT", "OFF", "ON", "VOCABULARY", "treelike"]

_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "mscale": 0.8,
    "original_max_position_embeddings": 64,
}
_LONG = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 4,
    "long_factor": [1.0, 2.0, 3.0, 4.0],
}
_AS_THEY_ARE = (
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "phi3",
    "glm4",
    "mixtral",
    "deepseek_v3",
    "hunyuan_v1_dense",
    "granite",
)

ON: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, every head its own": {"num_key_value_heads": 4},
    "llama, one key head": {"num_key_value_heads": 1},
    "llama, linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "llama, llama3": {"rope_scaling": _LLAMA3},
    "llama, yarn": {"rope_scaling": _YARN},
    "llama, longrope": {"rope_scaling": _LONG},
    "llama, traditional": {"rope_traditional": True, "attention_bias": True},
    **{name: {} for name in _AS_THEY_ARE},
}
"""Models of mlx-lm that a tree works with."""

OFF: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "nanochat": {},
    "ministral3": {"layer_types": None},
    "llama, dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
}
"""Models that put the position to other uses: learned, turned by hand, tuned, grown with length."""

LATENT: dict[str, dict[str, Any]] = {
    "deepseek_v3": {},
    "deepseek_v32": {"index_topk": 6},
    "glm4_moe_lite": {},
    "longcat_flash": {},
    "mistral4": {},
    "bailing_hybrid": {},
}
"""Models whose cache holds latents, from which keys and values are multiplied."""


@cache
def treelike(name: str, **changes: Any) -> Any:
    """The model of that name, with four heads; ``changes`` to its configuration."""
    kind = name.split(",")[0]
    return built({**ARCHITECTURES[kind], **_HEADS, **(ON | OFF | LATENT)[name], **changes})
