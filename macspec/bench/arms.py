"""Arms by name: how a name is read, and how its arm is made."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import quantize

from ..assets import pocket
from ..choices import MAX_DEPTH, MODELS, RULES
from ..config.schema import BUILT_IN
from ..errors import BadOptionError
from ..kernels import Kernels
from ..models import Pair, load_pair
from .costs import Costs
from .macspecarm import ConcurrentArm, DecodeConfig, MacspecArm
from .mlxlm import MlxLmArm
from .questions import Arm
from .server import Server
from .serverarm import ServerArm

PLAIN = "plain"

MLX_LM = "mlx-lm"
MLX_LM_DRAFT = "mlx-lm-draft"
SERVER = "server"

KNOWN = (
    f"plain; auto, {', '.join(MODELS)}, ngram or suffix, optionally with @DEPTH, :RULE and "
    "+chains, as in draft@4:keyed; mlx-lm; mlx-lm-draft, with @DEPTH or at its best; server"
)

_DEPTH = r"(?:@(?P<depth>\d{1,3}))?"
_RULE = rf"(?::(?P<rule>{'|'.join(RULES)}))?"
_CHAINS = r"(?P<chains>\+chains)?"
_KV, _DRAFT = r"(?:\+kv(?P<kv>[248]))?", r"(?:\+draft(?P<draft>[248]))?"
_AT_ONCE = r"(?:/(?P<at_once>\d))?"

_NAMES = (
    rf"(?P<name>{PLAIN}){_KV}{_AT_ONCE}",
    rf"(?P<name>auto|{'|'.join(MODELS)}){_DEPTH}{_RULE}{_CHAINS}{_KV}{_DRAFT}{_AT_ONCE}",
    rf"(?P<name>ngram|suffix){_DEPTH}{_RULE}{_KV}{_DRAFT}{_AT_ONCE}",
    rf"(?P<name>{MLX_LM}){_KV}",
    rf"(?P<name>{MLX_LM_DRAFT}){_DEPTH}{_KV}{_DRAFT}",
    rf"(?P<name>{SERVER})",
)
"""What an arm may be called; a number behind it tells doubles apart."""


@dataclass(frozen=True, slots=True)
class ArmName:
    """An arm by its name."""

    text: str
    """As typed, and as reports call it; ``#2`` at its end distinguishes a double."""
    method: str
    """One of ``choices.METHODS``; or ``MLX_LM``, ``MLX_LM_DRAFT``, ``SERVER``."""
    depth: int | str = "auto"
    rule: str = "block"
    trees: bool = True
    """Whether a chain may have a branch: not with ``+chains``."""
    kv_bits: int | None = None
    """Of the target's keys and values, if not as for all arms: ``+kv8``."""
    draft_bits: int | None = None
    """To which the draft model's weights are quantized: ``+draft4``."""
    at_once: int = 1
    """Sessions that write at the same time: ``/4``."""

    @property
    def usual(self) -> bool:
        """Whether passes and draft steps cost what they cost the other arms."""
        return self.kv_bits is None and self.draft_bits is None

    @property
    def keyed(self) -> bool:
        """Whether its text is that of plain decoding at any temperature."""
        return self.method == "off" or self.rule == "keyed"

    @classmethod
    def parse(cls, text: str) -> ArmName:
        """Parse a name.

        Raises:
            BadOptionError: there is no such arm.
        """
        text = text.strip()
        match = next(filter(None, (re.fullmatch(rf"{it}(?:#\d)?", text) for it in _NAMES)), None)
        if match is None:
            raise BadOptionError(f"there is no arm {text!r}; there are {KNOWN}")
        given = match.groupdict()
        depth, kv_bits, draft_bits, at_once = (
            None if given.get(name) is None else int(given[name])
            for name in ("depth", "kv", "draft", "at_once")
        )
        least = 1 if given["name"] == MLX_LM_DRAFT else 0
        if depth is not None and not least <= depth <= MAX_DEPTH:
            raise BadOptionError(f"{text}: a depth is {least} to {MAX_DEPTH}")
        if at_once == 0:
            raise BadOptionError(f"{text}: needs at least one session")
        return cls(
            text,
            "off" if given["name"] == PLAIN else given["name"],
            depth="auto" if depth is None else depth,
            rule=given.get("rule") or "block",
            trees=given.get("chains") is None,
            kv_bits=kv_bits,
            draft_bits=draft_bits,
            at_once=at_once or 1,
        )


@dataclass(slots=True)
class ArmFactory:
    """Makes arms for a pair.

    Args:
        kv_bits, kernels: of every arm.
        costs: what passes cost here.
        server: of this machine, if one is measured.
    """

    pair: Pair
    kv_bits: int | None = None
    kernels: Kernels | str = "auto"
    costs: Costs | None = None
    server: Server | None = None
    _drafts: dict[int, Pair] = field(default_factory=dict)

    def make(self, name: ArmName) -> Arm:
        """The arm of a name.

        Raises:
            BadOptionError: it cannot be had with this pair.
        """
        if name.method == SERVER:
            if self.server is None:
                raise BadOptionError("the arm server needs --server ADDRESS")
            return ServerArm(name.text, self.server)
        pair, bits = self.pair, name.draft_bits
        if bits is not None:
            if bits not in self._drafts:
                self._drafts[bits] = with_draft_bits(pair, bits)
            pair = self._drafts[bits]
        kv_bits = self.kv_bits if name.kv_bits is None else name.kv_bits
        if name.method == MLX_LM:
            return MlxLmArm(name.text, pair, kv_bits=kv_bits)
        if name.method == MLX_LM_DRAFT:
            depth = name.depth if isinstance(name.depth, int) else None
            return MlxLmArm(name.text, for_mlx_lm(pair), depth=depth, kv_bits=kv_bits)
        config = DecodeConfig(name.method, name.depth, name.rule, name.trees, kv_bits, self.kernels)
        costs = self.costs if name.usual else None
        if name.at_once > 1:
            return ConcurrentArm(name.text, pair, name.at_once, config, costs=costs)
        return MacspecArm(name.text, pair, config, costs=costs)


def for_mlx_lm(pair: Pair) -> Pair:
    """The pair with a draft model, the only drafter of mlx-lm: the built-in target has one besides
    its head."""
    if pair.draft is not None or pair.target.path != pocket().target:
        return pair
    return load_pair(draft=BUILT_IN, context=pair.context, beside=pair)


def with_draft_bits(pair: Pair, bits: int) -> Pair:
    """The pair with a copy of its draft model whose weights are quantized.

    Raises:
        BadOptionError: there is no draft model, or it is quantized already.
    """
    if pair.draft is None:
        raise BadOptionError(f"there is no draft model to quantize to {bits} bits")
    if pair.draft.config.get("quantization"):
        raise BadOptionError(
            f"the draft model {pair.draft.name} is already quantized: choose the original"
        )
    module: Any = copy.deepcopy(pair.draft.module)
    for group in (64, 32):  # weights that share a scale; the first that fits a matrix
        fits = partial(_fits, group=group)
        quantize(module, group_size=group, bits=bits, class_predicate=fits)
    mx.eval(module.parameters())
    return replace(pair, draft=replace(pair.draft, module=module))


def _fits(path: str, module: Any, group: int) -> bool:
    """Whether a layer has a matrix whose rows are whole groups."""
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0
