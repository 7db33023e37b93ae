"""The draft model in fewer bits."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import quantize

from ..errors import BadOptionError
from ..models import Pair

GROUPS = (64, 32)
"""Weights that share a scale; the first that fits a matrix."""


def with_draft_bits(pair: Pair, bits: int) -> Pair:
    """The pair with a copy of its draft model whose weights are quantized.

    Raises:
        BadOptionError: there is no draft model, or it is quantized already.
    """
    if pair.draft is None:
        raise BadOptionError(f"there is no draft model to quantize to {bits} bits")
    if pair.draft.config.get("quantization"):
        raise BadOptionError(
            f"the draft model {pair.draft.name} is quantized already: choose the one that it was "
            "made from"
        )
    module: Any = copy.deepcopy(pair.draft.module)
    for group in GROUPS:
        fits = partial(_fits, group=group)
        quantize(module, group_size=group, bits=bits, class_predicate=fits)
    mx.eval(module.parameters())
    return replace(pair, draft=replace(pair.draft, module=module))


def _fits(path: str, module: Any, group: int) -> bool:
    """Whether a layer has a matrix whose rows are whole groups."""
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0
