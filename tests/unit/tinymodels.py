"""Random models of a few kilobytes, one for each kind of cache that mlx-lm has."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import mlx.core as mx
from hybrids import HYBRIDS, VOCABULARY

WINDOW = 8
"""Sliding window, or chunk, of the models that have one."""

_COMMON = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
}

_LLAMA4_TEXT = {
    **_COMMON,
    "model_type": "llama4_text",
    "attention_bias": False,
    "attention_chunk_size": WINDOW,
    "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 24,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 4,
    "num_local_experts": 2,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "use_qk_norm": True,
}

_CONFIGS: dict[str, dict[str, Any]] = {
    **HYBRIDS,
    "llama": {**_COMMON, "model_type": "llama", "num_hidden_layers": 2},
    "llama-wide": {**_COMMON, "model_type": "llama", "num_hidden_layers": 2, "head_dim": 64},
    "llama-middle": {**_COMMON, "model_type": "llama", "num_hidden_layers": 2, "head_dim": 96},
    "llama-sliding": {
        **_COMMON,
        "model_type": "llama",
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "sliding_window": WINDOW,
    },
    "gemma3_text": {
        **_COMMON,
        "model_type": "gemma3_text",
        "num_hidden_layers": 3,
        "query_pre_attn_scalar": 8,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 3,
    },
    "gpt_oss": {
        **_COMMON,
        "model_type": "gpt_oss",
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_theta": 10000,
        "rope_scaling": None,
    },
    "gemma4_text": {
        **_COMMON,
        "model_type": "gemma4_text",
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": WINDOW,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": VOCABULARY,
    },
    "llama4": {"model_type": "llama4", "text_config": _LLAMA4_TEXT},
    "mamba": {
        "model_type": "mamba",
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "state_size": 4,
        "num_hidden_layers": 2,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 2,
    },
    "qwen3_next": {
        **_COMMON,
        "model_type": "qwen3_next",
        "num_hidden_layers": 2,
        "full_attention_interval": 2,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 16,
        "mlp_only_layers": [],
        "moe_intermediate_size": 16,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
    },
}


@cache
def tiny(name: str, **changes: Any) -> Any:
    """The model of that name in float32, with the same random weights at every call.

    Args:
        changes: to its configuration.
    """
    config = _CONFIGS[name]
    if "text_config" in config:
        config = {**config, "text_config": {**config["text_config"], **changes}}
    else:
        config = {**config, **changes}
    architecture = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(11)
    model = architecture.Model(architecture.ModelArgs.from_dict(config))
    model.set_dtype(mx.float32)
    model.eval()
    mx.eval(model.parameters())
    return model
