"""Random models of a few kilobytes, one for each architecture of mlx-lm."""

from __future__ import annotations

import copy
import importlib
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from architectures import ARCHITECTURES, VOCABULARY, WINDOW, Config
from mlx.utils import tree_map

from macspec.assets import pocket

__all__ = ["VOCABULARY", "WINDOW", "built", "noisy", "saved", "tiny"]

TAGGED = 4100
"""Ids of a model with the built-in pair's tokenizer and tags for reasoning."""

_LLAMA = ARCHITECTURES["llama"]

_SHAPES: dict[str, Config] = {
    "llama-narrow": {**_LLAMA, "head_dim": 8},
    "llama-wide": {**_LLAMA, "head_dim": 64},
    "llama-middle": {**_LLAMA, "head_dim": 96},
    "llama-sliding": {
        **_LLAMA,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen3_5-wide": {
        **ARCHITECTURES["qwen3_5"],
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    },
}
"""Some of them in other shapes."""


def built(config: Config) -> Any:
    """A model in float32, with the same random weights at every call."""
    architecture = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(11)
    model = architecture.Model(architecture.ModelArgs.from_dict(config))
    for part in model.modules():
        if "A_log" in part:
            # As initialised, states forget almost everything with each row, faults included.
            part.A_log = part.A_log - 4
    model.set_dtype(mx.float32)
    if hasattr(model, "_dummy_tokenizer_ids"):
        # Ids of its own tokenizer, which it masks; these models have fewer.
        model._dummy_tokenizer_ids = mx.array([3])
    model.update(tree_map(_random, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


def _random(weight: mx.array) -> mx.array:
    """The same, but no matrix of zeros, with which a router would always choose alike."""
    if weight.ndim < 2 or mx.any(weight).item():
        return weight
    if mx.issubdtype(weight.dtype, mx.integer):
        return mx.random.randint(0, 255, weight.shape).astype(weight.dtype)
    return 0.1 * mx.random.normal(weight.shape)


def noisy(model: Any) -> Any:
    """A draft model: a target with some noise on its weights, so that it is sometimes right."""
    model = copy.deepcopy(model)
    mx.random.seed(3)

    def shift(weight: mx.array) -> mx.array:
        if not mx.issubdtype(weight.dtype, mx.floating):
            return weight
        return weight + 0.1 * mx.std(weight) * mx.random.normal(weight.shape)

    model.update(tree_map(shift, model.parameters()))
    mx.eval(model.parameters())
    return model


@cache
def tiny(name: str) -> Any:
    """The model of that name."""
    return built(_SHAPES.get(name) or ARCHITECTURES[name])


def noisy_folder(target: Path, folder: Path) -> Path:
    """A draft model for a saved target, as ``noisy`` makes it."""
    shutil.copytree(target, folder)
    config = json.loads((folder / "config.json").read_text())
    noisy(built(config)).save_weights(str(folder / "model.safetensors"))
    return folder


def saved(name: str, folder: Path, template: str | None = None, **changes: Any) -> Path:
    """The model of that name in a folder to load, with the built-in pair's tokenizer.

    Args:
        template: of chats; it may have the tags <think> and </think>.
        changes: of its configuration.
    """
    shutil.copytree(pocket().draft, folder)
    if template is not None:
        file = folder / "tokenizer_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
        file = folder / "tokenizer.json"
        tokenizer = json.loads(file.read_text())
        added, last = tokenizer["added_tokens"], max(tokenizer["model"]["vocab"].values())
        for number, tag in enumerate(("<think>", "</think>"), last + 1):
            added.append({**added[-1], "id": number, "content": tag})
        file.write_text(json.dumps(tokenizer))
    config = {**ARCHITECTURES[name], "vocab_size": TAGGED, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    built(config).save_weights(str(folder / "model.safetensors"))
    return folder
