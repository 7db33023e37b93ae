"""Whether the machines of a group have the same model: what its files are, by samples of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

PATTERNS = ("config.json", "*.safetensors", "*.safetensors.index.json", "*.py")
"""Files that a rank reads to run its part."""

WHOLE = 2**20
"""A file of at most so many bytes is read whole."""

SAMPLES = 16
"""Places in a longer file that are read, its beginning and its end among them."""

SAMPLE = 2**14


def digests(folder: Path) -> dict[str, str]:
    """For each file of a model its size, and a hash of its content or of samples of that."""
    found = {path.name: path for pattern in PATTERNS for path in folder.glob(pattern)}
    return {name: _digest(path) for name, path in sorted(found.items())}


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """How a model there is not that of here, in a clause; None if it is."""
    for name in sorted(here.keys() | there.keys()):
        if name not in there:
            return f"it lacks {name}"
        if name not in here:
            return f"it has {name}, too"
        if here[name] != there[name]:
            return f"its {name} is another"
    return None


def _digest(path: Path) -> str:
    size = path.stat().st_size
    content = hashlib.sha256()
    with open(path, "rb") as file:
        if size <= WHOLE:
            content.update(file.read())
        else:
            for number in range(SAMPLES):
                file.seek((size - SAMPLE) * number // (SAMPLES - 1))
                content.update(file.read(SAMPLE))
    return f"{size} {content.hexdigest()[:16]}"
