"""Random models of a few kilobytes with plain caches, one for each way to hold positions."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import mlx.core as mx

VOCABULARY = 61

_COMMON = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}

_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}

_LATENT = {
    **_EXPERTS,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "routed_scaling_factor": 1.0,
}

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
_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
_ALPHA = {"type": "dynamic", "factor": 1.0, "alpha": 50.0}
_TUNED = {"rope_type": "default", "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1,
          "original_max_position_embeddings": 8192}  # fmt: skip
_GPT = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64, "n_ctx": 64, "n_inner": 24}

ON: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, every head its own": {"num_key_value_heads": 4},
    "llama, one key head": {"num_key_value_heads": 1},
    "llama, linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "llama, llama3": {"rope_scaling": _LLAMA3},
    "llama, yarn": {"rope_scaling": _YARN},
    "llama, longrope": {"rope_scaling": _LONG},
    "llama, traditional": {"rope_traditional": True, "attention_bias": True},
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": _EXPERTS,
    "gemma": {},
    "gemma2": {"query_pre_attn_scalar": 8.0},
    "phi3": {},
    "glm4": {"attention_bias": True, "partial_rotary_factor": 0.5},
    "mixtral": _EXPERTS,
    "deepseek_v3": _LATENT,
    "hunyuan_v1_dense": {"rope_scaling": _ALPHA, "use_qk_norm": True},
    "granite": {
        "logits_scaling": 1.0,
        "attention_multiplier": 0.3,
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "attention_bias": False,
        "mlp_bias": False,
    },
}
"""Models of mlx-lm that a tree works with."""

OFF: dict[str, dict[str, Any]] = {
    "gpt2": {**_GPT, "layer_norm_epsilon": 1e-5},
    "nanochat": {},
    "ministral3": {"rope_parameters": _TUNED, "attention_bias": False},
    "llama, dynamic": {"rope_scaling": _DYNAMIC},
}
"""Models that put the position to other uses: learned, turned by hand, tuned, grown with length."""

LATENT: dict[str, dict[str, Any]] = {
    "deepseek_v3": _LATENT,
    "deepseek_v32": {**_LATENT, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 6},
    "glm4_moe_lite": {
        **_LATENT,
        "moe_layer_freq": 1,
        "rope_scaling": None,
        "attention_bias": False,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
    "longcat_flash": {
        **_LATENT,
        "attention_bias": False,
        "attention_method": "MLA",
        "ffn_hidden_size": 24,
        "expert_ffn_hidden_size": 8,
        "moe_topk": 2,
        "num_layers": 2,
        "zero_expert_num": 2,
        "zero_expert_type": "identity",
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    },
    "mistral4": {**_LATENT, "rope_parameters": {**_YARN, **_TUNED, "rope_type": "yarn"}},
    "bailing_hybrid": {
        **_LATENT,
        "num_hidden_layers": 3,
        "num_shared_experts": 1,
        "layer_group_size": 3,
        "group_norm_size": 1,
        "use_qk_norm": True,
        "use_bias": False,
        "use_qkv_bias": False,
        "score_function": "sigmoid",
        "rope_interleave": True,
    },
}
"""Models whose cache holds latents, from which keys and values are multiplied."""


@cache
def treelike(name: str) -> Any:
    """The model of that name in float32, with the same random weights at every call."""
    kind = name.split(",")[0]
    config = {**_COMMON, "model_type": kind, **(ON | OFF | LATENT)[name]}
    architecture = importlib.import_module(f"mlx_lm.models.{kind}")
    mx.random.seed(11)
    model = architecture.Model(architecture.ModelArgs.from_dict(config))
    model.set_dtype(mx.float32)
    model.eval()
    mx.eval(model.parameters())
    return model
