"""Choosing a power source, and what ``macspec check`` says about power."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distributions

from .apple import Apple, Macmon
from .conditions import conditions
from .linux import Nvml, Rapl
from .source import NoSource, PowerError, PowerSource

SOURCES: dict[str, Callable[[], PowerSource]] = {
    "apple": Apple,
    "macmon": Macmon,
    "nvml": Nvml,
    "rapl": Rapl,
}


def candidates(wanted: str = "auto") -> list[str]:
    """The names of the sources that a setting allows, best first."""
    if wanted == "off":
        return []
    if wanted != "auto":
        return [wanted]
    if sys.platform == "darwin":
        return ["apple", "macmon"]
    # Only the device that computes is of interest.
    return ["nvml"] if _on_cuda() else ["rapl"]


def choose(wanted: str = "auto") -> PowerSource:
    """The first source that works, opened, or one that says why none does; may take seconds."""
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


def check_lines(wanted: str = "auto") -> Iterator[tuple[str, str]]:
    """Label and text of each line: whether power can be read, or why not and what to do."""
    names = candidates(wanted)
    if not names:
        yield "watts", "switched off: macspec config set power.source auto"
    for number, name in enumerate(names):
        source = SOURCES[name]()
        try:
            said = source.available() or _read(source)
            yield "watts" if number == 0 else "", f"{name}: {said}"
            if source.rails:
                break
        finally:
            source.close()
    yield "conditions", str(conditions())


def _read(source: PowerSource) -> str:
    try:
        read = source.read().joules
    except PowerError as error:
        return f"cannot read it: {error}"
    rails = [
        f"{rail.name} ({rail.partial})" if rail.partial else rail.name
        for rail in source.rails
        if rail.name in read
    ]
    return f"{', '.join(rails)}; {source.basis}"
