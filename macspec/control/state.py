"""What earlier sessions learned, on disk."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .acceptance import Survival
from .cost import CostCurve

FORMAT = 3


class Ledger:
    """Costs and survival of one machine and pair, in one small file that may vanish at any time.

    A file that is damaged, of another format or about something else is as good as none; what can
    not be written is not kept. Costs go stale when what computes them changes, survival does not.

    Args:
        path: the file.
        made_for: what the costs depend on beside the pair: chip, MLX version, kernels in use.
    """

    def __init__(self, path: Path, made_for: Mapping[str, str]) -> None:
        self.path = path
        self.made_for = dict(made_for)

    def load(self, curve: CostCurve, survival: Survival) -> None:
        """Put what is known into both."""
        try:
            stored: Any = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["format"] != FORMAT:
                return
            survival.restore(stored["survival"])
            if stored["made_for"] == self.made_for:
                curve.restore(stored["costs"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return

    def save(self, curve: CostCurve, survival: Survival) -> None:
        """Replace the file, whole or not at all."""
        text = json.dumps(
            {
                "format": FORMAT,
                "made_for": self.made_for,
                "costs": curve.as_dict(),
                "survival": survival.as_dict(),
            }
        )
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, aside = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(aside, self.path)
            except OSError:
                os.unlink(aside)
                raise
