"""MTP heads with random weights, packaged as the checkpoints of each family have them.

The layers are made as mlx-lm names and shapes them, and then taken apart into what the families
store. Besides, a model of mlx-lm that has no layers but those computes what the head should.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from architectures import ARCHITECTURES
from headfiles import WIDTH, drawn
from mlx.utils import tree_flatten
from tinymodels import built

Tensors = dict[str, mx.array]
Pack = Callable[[Tensors, dict[str, Any]], Tensors]


def whole(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    return tensors


def numbered_experts(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """One matrix for each expert."""
    names = {"fc1": "up_proj", "fc2": "down_proj"}
    found: Tensors = {}
    for name, array in tensors.items():
        parts = re.match(r"(.*)\.switch_mlp\.(\w+)\.weight", name)
        if parts is None:
            found[name] = array
            continue
        for number in range(array.shape[0]):
            own = names.get(parts[2], parts[2])
            found[f"{parts[1]}.experts.{number}.{own}.weight"] = array[number]
    return found


def fused_experts(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Gates and what they gate in one tensor, of all experts."""
    found = {name: array for name, array in tensors.items() if "switch_mlp" not in name}
    gate, up, down = (tensors[f"mlp.switch_mlp.{it}_proj.weight"] for it in ("gate", "up", "down"))
    joint = mx.concatenate([gate, up], axis=-2)
    return found | {"mlp.experts.gate_up_proj": joint, "mlp.experts.down_proj": down}


def latent(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Keys and values out of one matrix, and one matrix for each expert."""
    heads = config["num_attention_heads"]
    keys = tensors["self_attn.embed_q.weight"].swapaxes(-1, -2)
    both = mx.concatenate([keys, tensors["self_attn.unembed_out.weight"]], axis=1)
    found = {it: a for it, a in tensors.items() if "embed_q" not in it and "unembed" not in it}
    found["self_attn.kv_b_proj.weight"] = both.reshape(heads * (both.shape[1]), -1)
    return numbered_experts(found, config)


@dataclass(frozen=True)
class Packaging:
    """How a family stores an MTP head."""

    family: str
    config: dict[str, Any]
    """Of a model with the head's layers, where that differs from the target's."""
    names: tuple[str, str, str, str]
    """Of the norms of embedding and hidden row, of the projection, and of the last norm."""
    part: str
    """What is before these names; the depth goes into the braces."""
    layer: str
    """What is before the names in a layer; the depth goes into the braces, or the layer."""
    first: int = 0
    """The number of the first depth."""
    depths: int = 1
    pack: Pack = whole
    stored: float = 0.0
    """What the stored weights of norms lack."""
    hidden_first: bool = False
    quiet: int | None = None
    """A layer of the model that adds nothing, since the model needs it."""


DEEPSEEK = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
SIDECAR = ("enorm", "hnorm", "eh_proj", "shared_head_norm")
QWEN = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
MIMO = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
FLASH = ("enorm", "hnorm", "eh_proj", "final_layernorm")
ONE: dict[str, Any] = {"num_hidden_layers": 1}
FULL: dict[str, Any] = {**ONE, "full_attention_interval": 1}
EXPERTS: dict[str, Any] = {**ONE, "first_k_dense_replace": 0}
WINDOWED = {"num_hidden_layers": 2, "hybrid_layer_pattern": [1, 0], "moe_layer_freq": [0, 0]}
BLOCKS = {"num_hidden_layers": 2, "hybrid_override_pattern": ["*", "E"]}
OURS, THEIRS = "mtp.layers.{}.", "model.layers.{}."

PACKAGINGS: dict[str, Packaging] = {
    "qwen3_next": Packaging(
        "qwen3_next", FULL, QWEN, "mtp.", OURS, pack=numbered_experts, stored=1.0
    ),
    "qwen3_5": Packaging("qwen3_5", FULL, QWEN, "mtp.", OURS, stored=1.0),
    "qwen3_5 sidecar": Packaging("qwen3_5", FULL, QWEN, "", "layers.{}."),
    "qwen3_5 depths": Packaging("qwen3_5", FULL, QWEN, "mtp.", OURS, depths=2, stored=1.0),
    "qwen3_5_moe": Packaging(
        "qwen3_5_moe", FULL, QWEN, "mtp.", OURS, pack=fused_experts, stored=1.0
    ),
    "deepseek_v3": Packaging("deepseek_v3", EXPERTS, DEEPSEEK, THEIRS, THEIRS, 2, pack=latent),
    "glm4_moe": Packaging(
        "glm4_moe", EXPERTS, DEEPSEEK, THEIRS, THEIRS, 2, depths=3, pack=numbered_experts
    ),
    "glm4_moe_lite": Packaging("glm4_moe_lite", EXPERTS, DEEPSEEK, THEIRS, THEIRS, 2, pack=latent),
    "glm4_moe_lite sidecar": Packaging(
        "glm4_moe_lite", EXPERTS, SIDECAR, "model.", "model.mtp_block."
    ),
    "mimo": Packaging(
        "mimo", ONE, MIMO, "model.mtp_layers.{}.", "model.mtp_layers.{}.", hidden_first=True
    ),
    "mimo_v2_flash": Packaging(
        "mimo_v2_flash", WINDOWED, FLASH, f"model.{OURS}", f"model.{OURS}", depths=2, quiet=1,
    ),
    "nemotron_h": Packaging("nemotron_h", BLOCKS, FLASH, OURS, OURS, pack=numbered_experts),
}  # fmt: skip


class Made:
    """A random head in a packaging, and what it computes.

    Args:
        seed: of its weights.
    """

    def __init__(self, packaging: Packaging, seed: int = 1) -> None:
        self.packaging = packaging
        self.config: dict[str, Any] = {**ARCHITECTURES[packaging.family], **packaging.config}
        self.tensors: Tensors = {}
        """As the files have them."""
        self._depths = [self._depth(at, seed + at) for at in range(packaging.depths)]

    def _depth(self, at: int, seed: int) -> tuple[Tensors, Any]:
        """The parts of a depth, and a model with its layers."""
        it, number = self.packaging, self.packaging.first + at
        model = built(self.config)
        shared = "{}" not in it.part
        shapes = {
            name: (WIDTH, 2 * WIDTH) if name == it.names[2] else (WIDTH,) for name in it.names
        }
        parts = drawn(
            {f"{name}.weight": shape for name, shape in shapes.items()}, 0 if shared else seed
        )
        for place, layer in enumerate(model.layers):
            held: Any = dict(tree_flatten(layer.parameters()))
            own = drawn({name: array.shape for name, array in held.items()}, seed + 10 * place)
            if place == it.quiet:
                own = {name: 0 * array for name, array in own.items()}
            layer.load_weights(list(own.items()))
            if place != it.quiet:
                prefix = it.layer.format(number + place)
                for name, array in it.pack(own, self.config).items():
                    self.tensors[prefix + name] = self._stored(name, array)
        last = it.part.format(number + (len(model.layers) - 1 if it.quiet is None else 0))
        for name, array in parts.items():
            prefix = last if name.startswith(it.names[3]) else it.part.format(number)
            self.tensors[prefix + name] = self._stored(name, array)
        return parts, model

    def _stored(self, name: str, array: mx.array) -> mx.array:
        return array - self.packaging.stored if array.ndim == 1 and "norm" in name else array

    def rows(self, at: int, hidden: mx.array, embedded: mx.array) -> mx.array:
        """What depth ``at`` puts out for hidden rows and embedded tokens, [n, width]."""
        parts, model = self._depths[at]
        norms = [parts[f"{it}.weight"] for it in self.packaging.names]
        pair = [normed(embedded, norms[0]), normed(hidden, norms[1])]
        if self.packaging.hidden_first:
            pair.reverse()
        entered = mx.concatenate(pair, -1) @ norms[2].T
        for module in model.modules():
            for name in module.keys() & {"embed_tokens", "embeddings"}:
                module[name].weight = entered
                module["norm" if "norm" in module else "norm_f"].weight = norms[3]
            if "lm_head" in module:
                module.lm_head.weight = mx.eye(WIDTH)
        out: mx.array = model(mx.arange(len(entered))[None])[0]
        return out


def normed(x: mx.array, weight: mx.array) -> mx.array:
    return x * mx.rsqrt(mx.mean(x**2, axis=-1, keepdims=True) + 1e-5) * weight
