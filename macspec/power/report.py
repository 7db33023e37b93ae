"""What ``macspec check`` says about power."""

from __future__ import annotations

from collections.abc import Iterator

from .choice import SOURCES, candidates
from .conditions import conditions
from .source import PowerError, PowerSource


def check_lines(wanted: str = "auto") -> Iterator[tuple[str, str]]:
    """Label and text of each line: whether watts can be read, why not and how to get them.

    Args:
        wanted: the setting ``power.source``.
    """
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
        return f"cannot be read: {error}"
    rails = [
        f"{rail.name} ({rail.partial})" if rail.partial else rail.name
        for rail in source.rails
        if rail.name in read
    ]
    return f"{', '.join(rails)}; {source.basis}"
