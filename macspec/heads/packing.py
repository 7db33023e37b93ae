"""Heads made smaller, under names that are read again as the head's own."""

from __future__ import annotations

import re
from collections.abc import Mapping

import mlx.core as mx

FINE = 8
"""Least bits of a head beside its target: small as it is, they cost little, and every guess that
coarse weights spoil costs a part of a pass."""

SMALL = 2**20
"""Matrices of fewer numbers stay as they are."""

KEPT = re.compile(
    r"norm|embed_tokens|markov_w1|kv_b_proj|\.experts\.|(mlp|mixer)\.gate\.|shared_expert_gate"
)
"""What stays as it is: routers, what is looked up, and what is taken apart when it is read."""

MIXED = {"up_proj": "fc1", "down_proj": "fc2"}
"""What mlx-lm calls the matrices of Nemotron's experts."""

_FUSED = re.compile(r"(.*\.)experts\.(gate_up|down)_proj")
_EXPERT = re.compile(r"(.*\.)experts\.(\d+)\.(\w+)\.weight")


def packed(
    tensors: Mapping[str, mx.array], bits: int | None, group: int = 64
) -> dict[str, mx.array]:
    """The tensors of a head, the large ones quantized; all experts of a layer in one.

    Args:
        bits: of a weight; None: as they are.
        group: weights that share a scale.
    """
    if bits is None:
        return dict(tensors)
    found: dict[str, mx.array] = {}
    for name, array in _together(tensors).items():
        floating = mx.issubdtype(array.dtype, mx.floating)
        large = array.ndim >= 2 and array.size >= SMALL and array.shape[-1] % group == 0
        if not (floating and large and name.endswith(".weight")) or KEPT.search(name):
            found[name] = array
            continue
        parts = mx.quantize(array, group_size=group, bits=bits)
        for end, part in zip(("weight", "scales", "biases"), parts, strict=True):
            found[name.removesuffix("weight") + end] = part
    return found


def _together(tensors: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """Experts as mlx-lm has them: those of a layer stacked, their gates apart."""
    found: dict[str, mx.array] = {}
    stacks: dict[str, dict[int, mx.array]] = {}
    for name, array in tensors.items():
        if (fused := _FUSED.fullmatch(name)) is not None:
            if fused[2] == "down":
                found[f"{fused[1]}switch_mlp.down_proj.weight"] = array
            else:
                gate, up = mx.split(array, 2, axis=-2)
                found[f"{fused[1]}switch_mlp.gate_proj.weight"] = gate
                found[f"{fused[1]}switch_mlp.up_proj.weight"] = up
        elif (expert := _EXPERT.fullmatch(name)) is not None:
            own = MIXED.get(expert[3]) if expert[1].endswith("mixer.") else None
            stack = stacks.setdefault(f"{expert[1]}switch_mlp.{own or expert[3]}.weight", {})
            stack[int(expert[2])] = array
        else:
            found[name] = array
    return found | {name: mx.stack([it[1] for it in sorted(stack.items())])
                    for name, stack in stacks.items()}  # fmt: skip
