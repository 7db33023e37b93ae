"""The tensors of heads: put into modules, quantized where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from .naming import number_of


def plain(module: Any) -> Any:
    """A module whose quantized layers are plain ones of the same size."""

    def unquantized(layer: Any) -> Any:
        if not hasattr(layer, "bits"):
            return layer
        count, out, packed = (1, *layer.weight.shape)[-3:]
        size, bias = packed * 32 // layer.bits, "bias" in layer
        if isinstance(layer, nn.QuantizedLinear):
            return nn.Linear(size, out, bias=bias)
        if isinstance(layer, QuantizedSwitchLinear):
            return SwitchLinear(size, out, count, bias=bias)
        if isinstance(layer, QuantizedMultiLinear):
            return MultiLinear(size, out, count)
        return layer

    module.update_modules(_mapped(module.leaf_modules(), unquantized))
    return module


def _mapped(tree: Any, change: Any) -> Any:
    if isinstance(tree, nn.Module):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_mapped(value, change) for value in tree]
    return tree


MODES = {(4, 32): "mxfp4", (4, 16): "nvfp4", (8, 32): "mxfp8"}
"""What a quantization without biases is, by bits and group size."""


def unpacked(weights: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """Tensors with those in bfloat16 that NVIDIA's Model Optimizer has stored as NVFP4.

    Such a matrix is bytes with two numbers each, E4M3 scales of 16 numbers (``weight_scale``), and
    a scale of the whole (``weight_scale_2``).

    Raises:
        ValueError: its parts do not belong together; the message continues "the head".
    """
    found = dict(weights)
    for name in [it for it in weights if it.endswith(".weight_scale_2")]:
        stem = name.removesuffix("_scale_2")
        whole, scales = found.pop(name), found.pop(f"{stem}_scale", None)
        packed = found.get(stem)
        if packed is None or scales is None or (packed.dtype, scales.dtype) != (mx.uint8,) * 2:
            raise ValueError(f"has {name} without the numbers that it scales")
        try:
            numbers = mx.dequantize(packed.view(mx.uint32), scales, None, 16, 4, "nvfp4")
        except ValueError as error:
            raise ValueError(f"is quantized in an unknown way: {stem}: {error}") from error
        found[stem] = (numbers.astype(mx.float32) * whole).astype(mx.bfloat16)
    return found


def load(head: Any, weights: Mapping[str, mx.array]) -> None:
    """Give a head its tensors, quantized where they are.

    Raises:
        ValueError: they do not fit; the message continues "the head".
    """

    def quantized(path: str, layer: Any) -> bool | dict[str, Any]:
        scales = weights.get(f"{path}.scales")
        if scales is None or not hasattr(layer, "to_quantized"):
            return False
        size = layer.weight.shape[-1]
        group, bits = size // scales.shape[-1], weights[f"{path}.weight"].shape[-1] * 32 // size
        found: dict[str, Any] = {"group_size": group, "bits": bits}
        if f"{path}.biases" not in weights and (bits, group) in MODES:
            found["mode"] = MODES[bits, group]
        return found

    for name, packed in weights.items():
        if name.endswith(".scales") and f"{name[:-6]}weight" not in weights:
            raise ValueError(f"lacks {name[:-6]}weight")
        if packed.size == 0:
            raise ValueError(f"has an empty tensor, {name}")
    try:
        nn.quantize(head, class_predicate=quantized)
    except ValueError as error:
        raise ValueError(f"is quantized in an unknown way: {error}") from error
    own = dict(tree_flatten(head.parameters()))
    for name in sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"lacks {name}" if name in own else f"has an unknown tensor, {name}")
    for name, array in own.items():
        if array.shape != weights[name].shape:
            shape, other = list(weights[name].shape), list(array.shape)
            raise ValueError(f"is for another target: its {name} is {shape} instead of {other}")
    head.load_weights(list(weights.items()))


class Beside(nn.Module):
    """Linear layers with one input; what they put out, one behind the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts = list(parts)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.concatenate([it(x) for it in self.parts], axis=-1)


def joined(parts: Sequence[Any]) -> Any:
    """Linear layers with one input as one, which takes a launch instead of several; beside each
    other where they are quantized in different ways."""
    first, *others = parts
    if any(vars(it) != vars(first) or it.keys() != first.keys() for it in others):
        return Beside(parts)
    for name in first:
        first[name] = mx.concatenate([it[name] for it in parts])
    return first


def eps_of(target: Any) -> float:
    """The epsilon of the target's norms."""
    found = (getattr(it, "eps", None) for it in target.modules() if isinstance(it, nn.RMSNorm))
    return next((it for it in found if it is not None), 1e-6)


def width_of(config: Mapping[str, Any]) -> int | None:
    """Numbers in a hidden row, by a target's configuration."""
    return number_of(config, "hidden_size")
