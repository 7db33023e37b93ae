"""Block drafters with random weights for tiny targets, as each packaging writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from headfiles import WIDTH, drawn, target_of, written
from tinymodels import VOCABULARY

from macspec.heads import LoadedHead, head_in, open_head
from macspec.models import Pair

SIZE, HEADS, KEYS, INNER, RANK, MASK = 32, 2, 1, 48, 32, 7
REDUCED = 40

Tensors = dict[str, mx.array]

BACKBONE: Mapping[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "head_dim": SIZE,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}
OWN: Mapping[str, Any] = {
    "target_layer_ids": [0, 1, 1],
    "mask_token_id": MASK,
    "markov_rank": RANK,
}
SLIDING: Mapping[str, Any] = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 20}


@dataclass(frozen=True)
class Packaging:
    """A way to package: its configuration, and which parts its files have."""

    kind: str
    config: Mapping[str, Any]
    parts: frozenset[str] = field(default=frozenset())
    """Of: output (an output head), reduced (a small vocabulary), embedding, gated, sink, gemma,
    minus (norms stored minus one), convs, noise (how noised each row is)."""


def packaging(kind: str, config: Mapping[str, Any], *parts: str) -> Packaging:
    return Packaging(kind, {**BACKBONE, **config}, frozenset(parts))


PACKAGINGS: Mapping[str, Packaging] = {
    "z-lab": packaging(
        "dflash",
        {
            "architectures": ["DFlashDraftModel"],
            "dflash_config": OWN,
            "block_size": 6,
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 24,
        },
        "reduced",
    ),
    "dflash2": packaging(
        "dflash",
        {
            "architectures": ["DFlash2DraftModel"],
            "block_size": 8,
            "dflash_config": {
                **OWN,
                "selector_rank": RANK,
                "selector_top_k": 16,
                "conv_kernel_size": 2,
                "conv_group_size": 16,
                "final_logit_softcapping": 4.0,
                "output_multiplier": 0.5,
                "input_embedding_scale": 1.5,
            },
        },
        "convs",
    ),
    "deepspec": packaging("dspark", {**OWN, "block_size": 7}, "embedding", "output"),
    "deepspec-gemma": packaging(
        "dspark",
        {
            **OWN,
            "block_size": 7,
            "rope_parameters": {"full_attention": {"rope_theta": 10000.0}},
        },
        "embedding",
        "output",
        "gemma",
    ),
    "bonsai": packaging(
        "dspark", {**OWN, "block_size": 7, "log_snr_conditioning": True}, "embedding", "noise"
    ),
    "speculators": Packaging(
        "dspark",
        {
            "speculators_model_type": "dspark",
            "speculators_config": {"proposal_methods": [{"speculative_tokens": 5}]},
            "transformer_layer_config": BACKBONE,
            "aux_hidden_state_layer_ids": [0, 1, 1],
            "block_size": 6,
            "mask_token_id": MASK,
            "markov_rank": RANK,
            "draft_vocab_size": REDUCED,
        },
        frozenset(("embedding", "output", "reduced")),
    ),
    "speculators-causal": Packaging(
        "dspark",
        {
            "speculators_model_type": "dspark",
            "speculators_config": {"proposal_methods": [{"speculative_tokens": 6}]},
            "transformer_layer_config": {**BACKBONE, **SLIDING, "use_sliding_window": True},
            "aux_hidden_state_layer_ids": [0, 1, 1],
            "block_size": 6,
            "mask_token_id": MASK,
            "markov_rank": RANK,
            "draft_vocab_size": VOCABULARY,
        },
    ),
    "speculators-dflash": Packaging(
        "dflash",
        {
            "speculators_model_type": "dflash",
            "transformer_layer_config": {**BACKBONE, **SLIDING},
            "sliding_window_non_causal": True,
            "aux_hidden_state_layer_ids": [0, 1, 1],
            "block_size": 6,
            "mask_token_id": MASK,
            "draft_vocab_size": REDUCED,
            "sample_from_anchor": False,
        },
        frozenset(("output", "reduced")),
    ),
    "specforge": packaging(
        "dspark",
        {
            "architectures": ["DSparkDraftModel"],
            "block_size": 7,
            "dflash_config": {**OWN, "projector_type": "dspark"},
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
        "reduced",
    ),
    "liquid": packaging(
        "dspark",
        {
            "architectures": ["Lfm2DSparkDraftModel"],
            "block_size": 9,
            "dflash_config": OWN,
            "rope_is_neox_style": False,
        },
    ),
    "nvidia": packaging(
        "dspark",
        {
            "architectures": ["Qwen3DSparkModel"],
            **OWN,
            "block_size": 7,
            "dflash_query_causal": True,
            "attention_sink_bias": True,
            "sliding_window": 20,
        },
        "embedding",
        "sink",
    ),
    "native": packaging(
        "dspark",
        {
            "architectures": ["Qwen35DSparkModel"],
            "model_type": "qwen3_5",
            **OWN,
            "block_size": 7,
            "enable_qwen35_gated_q_proj": True,
        },
        "gated",
        "minus",
    ),
}


def tensors_of(form: Packaging, seed: int = 1, width: int = WIDTH) -> Tensors:
    """Random tensors under the names of its files, for a target of that width."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, 3 * width),
        "hidden_norm.weight": (width,),
        "norm.weight": (width,),
    }
    for at in range(2):
        shapes |= {
            f"layers.{at}.{name}": shape for name, shape in _layer(form.parts, width).items()
        }
    guesses = REDUCED if "reduced" in form.parts else VOCABULARY
    if "embedding" in form.parts:
        shapes["embed_tokens.weight"] = (VOCABULARY, width)
    if "output" in form.parts:
        shapes["lm_head.weight"] = (guesses, width)
    if form.kind == "dspark":
        shapes |= {
            "markov_head.markov_w1.weight": (VOCABULARY, RANK),
            "markov_head.markov_w2.weight": (guesses, RANK),
            "confidence_head.proj.weight": (1, width + RANK),
            "confidence_head.proj.bias": (1,),
        }
    if "noise" in form.parts:
        shapes |= {
            "log_snr_embed.fc1.weight": (width, 128),
            "log_snr_embed.fc1.bias": (width,),
            "log_snr_embed.fc2.weight": (width, width),
            "log_snr_embed.fc2.bias": (width,),
        }
    if "convs" in form.parts:
        shapes |= {
            "candidate_selector.predecessor_codebook": (VOCABULARY, RANK),
            "candidate_selector.successor_codebook": (VOCABULARY, RANK),
            "candidate_selector.hidden_projection.weight": (RANK, width),
        }
    found: Tensors = drawn(shapes, seed)
    if "minus" in form.parts:
        found = {name: it - ("norm" in name) for name, it in found.items()}
    if "reduced" in form.parts:
        known = [it * 3 // 2 for it in range(REDUCED)]
        found["d2t"] = mx.array([there - here for here, there in enumerate(known)], mx.int64)
        found["t2d"] = mx.zeros(VOCABULARY, mx.bool_)
    return found


def _layer(parts: frozenset[str], width: int) -> dict[str, tuple[int, ...]]:
    rows = HEADS * SIZE
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (2 * rows if "gated" in parts else rows, width),
        "self_attn.k_proj.weight": (KEYS * SIZE, width),
        "self_attn.v_proj.weight": (KEYS * SIZE, width),
        "self_attn.o_proj.weight": (width, rows),
        "self_attn.q_norm.weight": (SIZE,),
        "self_attn.k_norm.weight": (SIZE,),
        "mlp.gate_proj.weight": (INNER, width),
        "mlp.up_proj.weight": (INNER, width),
        "mlp.down_proj.weight": (width, INNER),
    }
    if "gemma" in parts:
        del shapes["self_attn.v_proj.weight"]
        shapes |= {f"{it}_feedforward_layernorm.weight": (width,) for it in ("pre", "post")}
        shapes["layer_scalar"] = (1,)
    if "sink" in parts:
        shapes["self_attn.attention_sink_bias"] = (HEADS,)
    if "convs" in parts:
        for name in ("attention_conv", "mlp_conv"):
            shapes[f"{name}.base_kernel"] = (2, 2, width)
            shapes[f"{name}.kernel_projection.weight"] = (2 * 2 * width // 16, width)
    return shapes


def block_of(
    pair: Pair,
    target: str,
    name: str,
    folder: Path,
    seed: int = 1,
    shift: float = 0.0,
    **config: Any,
) -> LoadedHead:
    """A random block drafter for a tiny target, by way of the disk.

    Args:
        shift: added to the weights of norms.
    """
    form = PACKAGINGS[name]
    tensors = {it: array + shift * ("norm" in it) for it, array in tensors_of(form, seed).items()}
    written(folder, tensors, {**form.config, **config})
    files = head_in("a head", folder)
    assert files is not None
    assert files.kind == form.kind
    return open_head(files, target_of(pair, target))
