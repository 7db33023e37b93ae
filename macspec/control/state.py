"""What earlier sessions learned about costs and acceptance, on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..io import read_json, write_atomic
from .acceptance import AcceptanceEstimate
from .cost import CostCurve

FORMAT = 4


class ControlState:
    """Costs and acceptance of one machine and pair, in a small file that may vanish at any time.

    A damaged file, one of another format or for something else counts as missing; what cannot be
    written is not kept.

    Args:
        made_for: what the costs, but not the acceptance, depend on besides the pair.
    """

    def __init__(self, path: Path, made_for: Mapping[str, str]) -> None:
        self.path = path
        self.made_for = dict(made_for)

    def load(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        """Restore what is known into both."""
        try:
            stored: Any = read_json(self.path)
            if stored["format"] != FORMAT:
                return
            acceptance.restore(stored["survival"])
            if stored["made_for"] == self.made_for:
                curve.restore(stored["costs"])
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            return

    def save(self, curve: CostCurve, acceptance: AcceptanceEstimate) -> None:
        """Replace the file."""
        stored = {
            "format": FORMAT,
            "made_for": self.made_for,
            "costs": curve.as_dict(),
            "survival": acceptance.as_dict(),
        }
        with suppress(OSError):
            write_atomic(self.path, json.dumps(stored), make_folder=True)
