"""From files to a head: which kind it is, and whether it fits its target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from ..cache import ModelCache
from ..choices import BLOCKS
from ..errors import PairMismatchError
from ..models.files import broken
from ..models.loading import Model
from ..models.memory import MemoryEstimate, layer_estimate
from ..tap import KEPT
from . import assistant, block, eagle, mtp
from .naming import HeadFiles, own_head
from .tensors import unpacked

KINDS: Mapping[str, Any] = {
    "mtp": mtp.build,
    "eagle": eagle.build,
    "dflash": block.build,
    "dspark": block.build,
}
"""How a head of each kind is built from its tensors."""

LOOKED_UP = re.compile(r"embed_tokens|markov_w1|codebook")
"""Tensors of which a step reads a few rows."""


@dataclass(frozen=True, eq=False)
class LoadedHead:
    """A head with what is known about it."""

    name: str
    kind: str
    """The drafting method."""
    module: Any = field(repr=False)
    parameters: int
    weight_bytes: int
    notes: tuple[str, ...]
    """What is odd about its files, and was put right, each continuing "the head"."""
    step_bytes: int
    """Bytes of weights that a step reads, those of the target's output head included."""

    def beside(self, target: MemoryEstimate) -> MemoryEstimate:
        """What the target costs together with it."""
        caches = [ModelCache(it) for it in self.module.depths]
        rows = mx.zeros((1, 2, self.module.width))  # a block that guesses has at least 2
        for depth, cache in zip(self.module.depths, caches, strict=True):
            if cache.layers:
                depth(rows, rows, cache.layers)
        layers = (layer_estimate(it, 0) for cache in caches for it in cache.layers)
        return replace(
            target,
            weights=target.weights + self.weight_bytes,
            layers=(*target.layers, *layers),
            rows=KEPT * len(self.module.wanted) * self.module.width * target.itemsize,
        )


def open_head(files: HeadFiles, target: Model) -> LoadedHead:
    """Load a head; its weights are read later, as those of a model.

    Raises:
        ModelBrokenError: a file cannot be read.
        PairMismatchError: it does not fit the target.
    """
    name = files.name
    with broken(f"{name}: its weights cannot be read"):
        loaded: dict[Path, Any] = {it: mx.load(str(it)) for it in set(files.tensors.values())}
        weights = {it: loaded[file][it] for it, file in files.tensors.items()}
    try:
        build = assistant.build if files.assists else KINDS[files.kind]
        module = build(unpacked(weights), target, files.config)
    except ValueError as error:
        raise PairMismatchError(f"the head {name} is off: it {error}") from error
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        why = "has settings in its config.json that cannot be read"
        raise PairMismatchError(f"the head {name} is off: it {why}") from error
    arrays = dict(tree_flatten(module.parameters()))
    own = sum(array.nbytes for array in arrays.values())
    looked_up = sum(array.nbytes for it, array in arrays.items() if LOOKED_UP.search(it))
    speaks = any({"head", "lm_head", "centroids"} & it.keys() for it in module.depths)
    outputs: Any = tree_flatten(target.module.parameters())
    wide = [array.nbytes for _, array in outputs if array.shape[:1] == (target.width,)]
    some = module.guesses
    share = 1.0 if some is None else some.targets.size / target.width
    output = 0 if speaks else int(share * max(wide, default=0))
    return LoadedHead(
        name=name,
        kind=files.kind,
        module=module,
        notes=module.form.notes if files.kind in BLOCKS else (),
        parameters=sum(array.size for array in arrays.values()),
        # A part of the target's output head is a copy.
        weight_bytes=own + (output if some is not None else 0),
        step_bytes=(own - looked_up) // len(module.depths) + output,
    )


def open_own_head(target: Model) -> LoadedHead | None:
    """Load the head that a target brings along, if it brings one; raises as ``open_head``."""
    files = own_head(target.name, target.path, target.layers)
    return None if files is None else open_head(files, target)
