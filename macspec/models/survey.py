"""The models on this machine: where they are, then what they need and which can draft for which.

As a program it writes one JSON object a line, so that the app can ask without MLX:
``python -m macspec.models.survey [FOLDER ...]``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from ..errors import MacspecError, brief
from .catalog import CONTEXT
from .findings import Event, Fit, Found, Listed, Machine, Opened
from .inventory import held
from .machine import unified_memory


def survey(folders: Sequence[str] = ()) -> Iterator[Event]:
    """Look at the models of the hub's cache, and at these folders.

    What lies where comes first and at once; MLX is imported after that.
    """
    found = [*_cached(), *(_folder(name) for name in folders)]
    yield from found
    yield Listed()
    # Only now: it takes a second.
    from ..device import prepare
    from .memory import device_limit

    prepare()
    limit = device_limit()
    yield Machine(unified_memory(), limit)
    yield from _opened([it for it in found if it.missing is None], limit)


def _cached() -> Iterator[Found]:
    for it in held():
        yield Found(it.name, str(it.folder), it.size, it.missing, f"{it.commit} {it.size}")


def _folder(name: str) -> Found:
    if not Path(name).is_dir():
        return Found(name, name, 0, "there is no such folder any more", "")
    try:
        files = [file.stat() for file in Path(name).iterdir() if file.is_file()]
    except OSError as error:
        return Found(name, name, 0, f"it cannot be read ({brief(error)})", "")
    newest = max((file.st_mtime_ns for file in files), default=0)
    size = sum(file.st_size for file in files)
    return Found(name, name, size, None, f"{newest} {size}")


def _opened(found: Sequence[Found], limit: int) -> Iterator[Event]:
    """Open each of them, and compare it with those before."""
    from .matches import Candidate, candidate, matches
    from .memory import plan

    able: dict[str, Candidate] = {}
    for it in found:
        new = candidate(it.name, Path(it.folder))
        if new.model is None or new.estimate is None:
            yield Opened(it.name, reason=new.reason)
            continue
        needs = plan(new.estimate, None, min(CONTEXT, new.estimate.context), None, limit)
        yield Opened(
            it.name,
            new.model.parameters,
            new.estimate.context,
            needs.total,
            needs.context,
            needs.fits,
            new.reason,
        )
        for other in able.values():
            for match in matches((new, other)):
                target, draft = (new, other) if match.target == new.name else (other, new)
                assert target.estimate is not None
                positions = min(CONTEXT, target.estimate.context)
                if match.reason is not None:
                    yield Fit(match.target, match.draft, match.reason, None, positions, None)
                    continue
                both = plan(target.estimate, draft.estimate, positions, None, limit)
                yield Fit(match.target, match.draft, None, both.total, positions, both.fits)
        able[new.name] = new


def main(folders: Sequence[str]) -> int:
    """Write the survey to standard output."""
    try:
        for event in survey(folders):
            record = {"event": type(event).__name__.lower(), **asdict(event)}
            print(json.dumps(record), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MacspecError as error:
        print(json.dumps({"event": "failed", "message": str(error)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
