"""What the controller can be tuned by, and what earlier sessions learned, on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..io import Kept, read_json, write_atomic


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the controller can be tuned by, each with its reason and what showed it: regret is the
    share of the best fixed setting's speed that was missed in ``macspec bench simulate``, at worst.
    """

    allowance: float = 0.017
    """Share of its tokens, at least of ``SETTLED``, by which decoding may fall behind plain
    decoding: 2%, less what a shaking clock hides. With 1.8% adversaries took 2.1%."""
    stake: float = 0.35
    """Share of that account which a round may lose, if it loses much more than the shallowest one.
    With all of it the regret was 4.6% cold on blocks with published acceptance, with 35% 2.0%."""
    credit: float = 16.0
    """Plain steps that may be lost again of those gained, or promised by an idle look at what was
    not drafted. Without that look the regret was 20% where drafted rounds cost two plain steps."""
    probing: float = 0.003
    """Share of the tokens that probes should cost. With 1.2% the regret was 0.6 to 0.8% more on
    average."""
    hysteresis: float = 1.01
    """How much more than plain decoding a round must promise. With 1.03 the regret was 2.3%."""
    memory: float = 400.0
    """Judged tokens that an acceptance cell remembers. With 200 the regret was up to 3.5%."""
    prior: float = 45.0
    """Weight, in judged tokens, of a wider cell beside a narrower one, and of earlier sessions;
    that of the shipped table is a quarter. Between 20 and 45 the regret is the same."""
    recent: float = 0.08
    """Weight of the newest judged token in recent acceptance. With 0.12 even texts, in which chance
    alone makes a stretch bad, lost up to 2.7%, with 0.08 up to 1.5%."""
    alike: float = 1.2
    """Times by which plain steps, or contexts, may differ and count as alike. Where rounds between
    any two plain steps were compared, bursts of load cost up to 4.7%."""
    precision: float = 1.02
    """What the account is charged over a round's expected cost: with 1 adversaries took 2.3%."""


PARAMETERS = Parameters()


FORMAT = 7


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

    def load(self, curve: Kept, acceptance: Kept) -> None:
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

    def save(self, curve: Kept, acceptance: Kept) -> None:
        """Replace the file."""
        stored = {"format": FORMAT, "made_for": self.made_for}
        stored |= {"costs": curve.as_dict(), "survival": acceptance.as_dict()}
        with suppress(OSError):
            write_atomic(self.path, json.dumps(stored), make_folder=True)
