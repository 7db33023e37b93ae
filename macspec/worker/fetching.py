"""Fetching what a load needs from the hub, with progress and a way to stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..events import Notice
from ..models.download import pull
from ..models.hubcache import cached_folder
from ..models.progress import Progress, Retrying
from .messages import Answer, LoadProgress


def fetch(names: Sequence[str], report: Callable[[Answer], None]) -> None:
    """Download those models that are hub ids and not in the hub's cache.

    Args:
        names: folders or ids, as ``load_pair`` takes them.
        report: told of the progress; what it raises ends the download, which goes on behind what
            arrived when it is asked for again.

    Raises:
        ModelNotFoundError, ModelBrokenError: as ``pull``.
    """
    missing = [
        name for name in names if _on_hub(name) and cached_folder(name.partition("@")[0]) is None
    ]
    if not missing:
        return
    for event in pull(missing):
        if isinstance(event, Progress):
            report(LoadProgress("downloading", event.done, event.total, event.model))
        elif isinstance(event, Retrying):
            again = f"trying again in {event.seconds:.0f} s"
            report(Notice(f"the connection to the hub broke ({event.reason}): {again}"))


def _on_hub(name: str) -> bool:
    """Whether it is an id; everything else is said by the one who opens it."""
    owner, _, model = name.partition("/")
    path = os.path.expanduser(name)
    return bool(owner and model) and path == name and not os.path.exists(path) and "/" not in model
