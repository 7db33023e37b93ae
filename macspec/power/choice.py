"""Which source to take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import distributions

from .apple import Apple
from .macmon import Macmon
from .nvml import Nvml
from .rapl import Rapl
from .source import NoSource, PowerSource

SOURCES: dict[str, Callable[[], PowerSource]] = {
    "apple": Apple,
    "macmon": Macmon,
    "nvml": Nvml,
    "rapl": Rapl,
}


def candidates(wanted: str = "auto") -> list[str]:
    """The names of the sources that ``wanted`` stands for, the best first.

    Args:
        wanted: as in the settings: a source, auto, or off.
    """
    if wanted == "off":
        return []
    if wanted != "auto":
        return [wanted]
    if sys.platform == "darwin":
        return ["apple", "macmon"]
    # Joules of a card on which nothing is computed would be no answer, nor the other way about.
    return ["nvml"] if _on_cuda() else ["rapl"]


def choose(wanted: str = "auto") -> PowerSource:
    """The first source that can be used, open; or one that says why there is none.

    May take seconds.
    """
    reasons = []
    for name in candidates(wanted):
        source = SOURCES[name]()
        reason = source.available()
        if reason is None:
            return source
        reasons.append(reason)
    return NoSource("; ".join(reasons) or "switched off in the settings (power.source)")


def _on_cuda() -> bool:
    names = (distribution.metadata["Name"] or "" for distribution in distributions())
    return any(name.lower().startswith("mlx-cuda") for name in names)
