"""Heads with random weights for tiny targets, on the disk as others package them."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import KVCache, make_prompt_cache
from tinymodels import VOCABULARY, tiny

from macspec.heads import LoadedHead, head_in, open_head
from macspec.heads.tensors import plain
from macspec.models import Model, Pair

TRAINED = Path(__file__).parent / "trained" / "mtp"
"""An MTP head for the built-in target."""

WIDTH = 64
REDUCED = 40
"""Ids that a head with a reduced vocabulary knows."""


def target_of(pair: Pair, name: str) -> Model:
    """A tiny model in place of a pair's target."""
    module = tiny(name)
    config = {"model_type": name, "hidden_size": WIDTH}
    return replace(pair.target, name=name, module=module, config=config, width=VOCABULARY)


def drawn(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, mx.array]:
    """Random tensors; norms are near one, large enough for the rest to matter."""
    keys = mx.random.split(mx.random.key(seed), len(shapes))
    found = {}
    for (name, shape), key in zip(shapes.items(), keys, strict=True):
        scale = 0.1 if len(shape) == 1 else 0.25
        found[name] = scale * mx.random.normal(shape, key=key) + (len(shape) == 1)
    return found


def mtp_tensors(module: Any, width: int = WIDTH, seed: int = 1) -> dict[str, mx.array]:
    """An MTP head as Qwen packages it, its layer as mlx-lm names it."""
    full = [at for at, it in enumerate(make_prompt_cache(module)) if type(it) is KVCache]
    layer: Any = tree_flatten(plain(copy.deepcopy(module.layers[full[-1]])).parameters())
    shapes = {
        "mtp.fc.weight": (width, 2 * width),
        "mtp.pre_fc_norm_embedding.weight": (width,),
        "mtp.pre_fc_norm_hidden.weight": (width,),
        "mtp.norm.weight": (width,),
        **{f"mtp.layers.0.{path}": array.shape for path, array in layer},
    }
    return drawn(shapes, seed)


def reduced() -> dict[str, mx.array]:
    """Which ids a head with a reduced vocabulary knows, as its files say it."""
    known = [it * 3 // 2 for it in range(REDUCED)]
    offsets = mx.array([target - own for own, target in enumerate(known)], mx.int64)
    return {"d2t": offsets, "t2d": mx.zeros(VOCABULARY, mx.bool_)}


EAGLE = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": WIDTH,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-5,
    "draft_vocab_size": REDUCED,
    "eagle_aux_hidden_state_layer_ids": [0, 1, 1],
}

SLIDING = EAGLE | {"layer_types": ["sliding_attention"], "sliding_window": 12}

SPECULATORS = {
    "speculators_model_type": "eagle3",
    "norm_before_residual": True,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 2],
    "transformer_layer_config": {
        "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
        **{it: EAGLE[it]
        for it in (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "rms_norm_eps",
        )},
    },
}  # fmt: skip
"""As speculators writes it, which numbers layers by what enters them."""

LAYER: dict[str, tuple[int, ...]] = {
    "post_attention_layernorm.weight": (WIDTH,),
    "self_attn.o_proj.weight": (WIDTH, 64),
    "mlp.gate_proj.weight": (48, WIDTH),
    "mlp.up_proj.weight": (48, WIDTH),
    "mlp.down_proj.weight": (WIDTH, 48),
}


def eagle_tensors(
    seed: int = 1, more: dict[str, tuple[int, ...]] | None = None
) -> dict[str, mx.array]:
    """An EAGLE-3 head with a reduced vocabulary, as SafeAILab packages it.

    Args:
        more: shapes of tensors that only some heads have.
    """
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, 3 * WIDTH),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (REDUCED, WIDTH),
        "midlayer.hidden_norm.weight": (WIDTH,),
        "midlayer.input_layernorm.weight": (WIDTH,),
        "midlayer.self_attn.q_proj.weight": (64, 2 * WIDTH),
        "midlayer.self_attn.k_proj.weight": (32, 2 * WIDTH),
        "midlayer.self_attn.v_proj.weight": (32, 2 * WIDTH),
        **{f"midlayer.{name}": shape for name, shape in LAYER.items()},
        **(more or {}),
    }
    return {**drawn(shapes, seed), **reduced()}


def first_eagle_tensors(seed: int = 1) -> dict[str, mx.array]:
    """An EAGLE-1 head."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, 2 * WIDTH),
        "layers.0.self_attn.q_proj.weight": (64, WIDTH),
        "layers.0.self_attn.k_proj.weight": (32, WIDTH),
        "layers.0.self_attn.v_proj.weight": (32, WIDTH),
        **{f"layers.0.{name}": shape for name, shape in LAYER.items()},
    }
    return drawn(shapes, seed)


def written(folder: Path, tensors: dict[str, mx.array], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def head_of(pair: Pair, name: str, kind: str, folder: Path, seed: int = 1) -> LoadedHead:
    """A random head for a tiny target, by way of the disk; "reduced": mtp, of some ids only;
    "sliding": eagle, with a window; "first": an EAGLE-1."""
    if kind in ("mtp", "reduced"):
        some = reduced() if kind == "reduced" else {}
        kind = "mtp"
        written(folder, mtp_tensors(tiny(name), seed=seed) | some, {"model_type": "qwen3_5_mtp"})
    else:
        tensors = first_eagle_tensors(seed) if kind == "first" else eagle_tensors(seed)
        written(folder, tensors, SLIDING if kind == "sliding" else EAGLE)
        kind = "eagle"
    files = head_in("a head", folder)
    assert files is not None
    assert files.kind == kind
    return open_head(files, target_of(pair, name))
