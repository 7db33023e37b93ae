"""Assistants with random weights for a tiny Gemma 4 target, as transformers writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from headfiles import WIDTH, drawn, head_of, target_of, written
from tinymodels import VOCABULARY

from macspec.heads import LoadedHead, head_in, open_head
from macspec.models import Pair

OWN = 24
"""Width of its own rows."""

KINDS = ("sliding_attention", "sliding_attention", "full_attention")
SIZES = {"sliding_attention": 32, "full_attention": 64}
CLUSTERS, CHOSEN = 10, 3
"""Of the vocabulary that is one id shorter."""

ASSISTANT: dict[str, Any] = {
    "model_type": "gemma4_assistant",
    "backbone_hidden_size": WIDTH,
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": OWN,
        "intermediate_size": 48,
        "num_hidden_layers": len(KINDS),
        "num_kv_shared_layers": len(KINDS),
        "layer_types": list(KINDS),
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": SIZES["sliding_attention"],
        "global_head_dim": SIZES["full_attention"],
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "use_double_wide_mlp": False,
        "sliding_window": 8,
        "rope_parameters": {
            "full_attention": {
                "partial_rotary_factor": 0.25,
                "rope_theta": 1000000.0,
                "rope_type": "proportional",
            },
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    },
}

CLUSTERED: dict[str, Any] = ASSISTANT | {
    "use_ordered_embeddings": True,
    "num_centroids": CLUSTERS,
    "centroid_intermediate_top_k": CHOSEN,
}


def assistant_tensors(
    clustered: bool = False, vocabulary: int = VOCABULARY, seed: int = 1
) -> dict[str, mx.array]:
    shapes: dict[str, tuple[int, ...]] = {
        "pre_projection.weight": (OWN, 2 * WIDTH),
        "post_projection.weight": (WIDTH, OWN),
        "model.embed_tokens.weight": (vocabulary, OWN),
        "model.norm.weight": (OWN,),
    }
    for at, kind in enumerate(KINDS):
        start, size = f"model.layers.{at}.", SIZES[kind]
        norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
        shapes |= {f"{start}{it}_layernorm.weight": (OWN,) for it in norms}
        shapes |= {
            f"{start}self_attn.q_proj.weight": (2 * size, OWN),
            f"{start}self_attn.o_proj.weight": (OWN, 2 * size),
            f"{start}self_attn.q_norm.weight": (size,),
            f"{start}mlp.gate_proj.weight": (48, OWN),
            f"{start}mlp.up_proj.weight": (48, OWN),
            f"{start}mlp.down_proj.weight": (OWN, 48),
            f"{start}layer_scalar": (1,),
        }
    if clustered:
        shapes["masked_embedding.centroids.weight"] = (CLUSTERS, OWN)
    tensors = drawn(shapes, seed)
    if clustered:
        ids = mx.random.permutation(vocabulary, key=mx.random.key(seed))
        tensors["masked_embedding.token_ordering"] = ids.astype(mx.int64)
    return tensors


def drafting(pair: Pair, name: str, kind: str, folder: Path) -> LoadedHead:
    """A random head of any kind for a tiny target, by way of the disk."""
    if kind != "assistant":
        return head_of(pair, name, kind, folder)
    files = head_in("a head", written(folder, assistant_tensors(), ASSISTANT))
    assert files is not None
    return open_head(files, target_of(pair, name))
