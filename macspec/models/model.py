"""One loaded model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlx.nn.layers.base import Module
from mlx_lm.tokenizer_utils import TokenizerWrapper


@dataclass(frozen=True, eq=False)
class Model:
    """A model of mlx-lm with its tokenizer and what is known about both."""

    name: str
    """What the user typed, or ``built-in target`` and ``built-in draft``."""
    path: Path
    module: Module = field(repr=False)
    config: dict[str, Any] = field(repr=False)
    tokenizer: TokenizerWrapper = field(repr=False)
    parameters: int
    weight_bytes: int
    context: int
    """Positions the model was made for."""
    width: int
    """Logits of one row; may be more than the tokenizer has ids."""
