"""What an arm is called on the command line, and the arm behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..depth import MAX_DEPTH, METHODS
from ..errors import BadOptionError
from ..kernels import Kernels
from ..models import Pair
from ..verification import RULES
from .arm import Arm
from .costs import Costs
from .mlxlm import MlxLm
from .own import Own

PLAIN = "plain"

MLX_LM = "mlx-lm"
MLX_LM_DRAFT = "mlx-lm-draft"

KNOWN = (
    "plain; auto, draft, ngram or suffix, with @DEPTH and :RULE if wanted, as in draft@4:keyed; "
    "mlx-lm; mlx-lm-draft, with @DEPTH or at its best one; server=ADDRESS"
)

_PATTERN = re.compile(r"([a-z-]+)(?:@(\d+|auto|best))?(?::([a-z]+))?")


@dataclass(frozen=True, slots=True)
class ArmName:
    """An arm by its name."""

    text: str
    """As it was typed, which is what reports call it."""
    method: str
    """off, auto, draft, ngram or suffix; or ``MLX_LM``, ``MLX_LM_DRAFT``, ``server``."""
    depth: int | str = "auto"
    rule: str = "block"
    server: str = ""
    """Where it listens, or how it is started."""

    @classmethod
    def parse(cls, text: str) -> ArmName:
        """Understand a name.

        Raises:
            BadOptionError: there is no such arm.
        """
        text = text.strip()
        if text.startswith("server="):
            return cls(text, "server", server=text.removeprefix("server="))
        match = _PATTERN.fullmatch(text)
        name, depth, rule = match.groups() if match else ("", None, None)
        method = "off" if name == PLAIN else name
        peer = method in (MLX_LM, MLX_LM_DRAFT)
        known = peer or (method in METHODS and name != "off")
        wrong = (depth and method in ("off", MLX_LM)) or (rule and peer)
        if not known or wrong or (rule and rule not in RULES):
            raise BadOptionError(f"there is no arm {text!r}; there are {KNOWN}")
        if depth is not None and depth.isdigit():
            least = 1 if method == MLX_LM_DRAFT else 0
            if not least <= int(depth) <= MAX_DEPTH:
                raise BadOptionError(f"{text}: a depth is {least} to {MAX_DEPTH}")
            return cls(text, method, int(depth), rule or "block")
        if depth == ("auto" if method == MLX_LM_DRAFT else "best"):
            raise BadOptionError(f"there is no arm {text!r}; there are {KNOWN}")
        return cls(text, method, "auto", rule or "block")


@dataclass(slots=True)
class Workshop:
    """Makes arms for a pair.

    Args:
        pair: from ``load_pair``.
        kv_bits, kernels: of every arm.
        costs: what passes cost here.
        server: makes the arm of a server from its name and from where it is.
        session: the class of macspec's sessions.
    """

    pair: Pair
    kv_bits: int | None = None
    kernels: Kernels | str = "auto"
    costs: Costs | None = None
    server: Callable[[str, str], Arm] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """More arguments for ``Own``."""

    def make(self, name: ArmName) -> Arm:
        """The arm of a name.

        Raises:
            BadOptionError: it cannot be had with this pair.
        """
        if name.method == "server":
            if self.server is None:
                raise BadOptionError("servers cannot be measured here")
            return self.server(name.text, name.server)
        if name.method == MLX_LM:
            return MlxLm(name.text, self.pair, kv_bits=self.kv_bits)
        if name.method == MLX_LM_DRAFT:
            depth = name.depth if isinstance(name.depth, int) else None
            return MlxLm(name.text, self.pair, depth=depth, kv_bits=self.kv_bits)
        return Own(
            name.text,
            self.pair,
            method=name.method,
            depth=name.depth,
            rule=name.rule,
            kv_bits=self.kv_bits,
            kernels=self.kernels,
            costs=self.costs,
            **self.settings,
        )
