"""What the hub answers, or whoever sits between, is checked and bounded before it is used."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit

from huggingface_hub import errors, get_session
from huggingface_hub.hf_api import RepoFile

from ..errors import ModelNotFoundError, quoted

_errors: Any = errors
# httpx in the hub's first versions, httpx2 in later ones.
http: Any = import_module(_errors.HTTPError.__module__.partition(".")[0])

LONGEST, COMPRESSED = 32 * 2**20, 2**20
"""Bytes of an answer about a model, and of one that is compressed."""

SECONDS = 60.0
"""For the whole of such an answer."""

SILENCE = 20.0
"""Seconds without a byte of it."""

MOST_FILES = 20_000

CHECKSUM = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
COMMIT = re.compile("[0-9a-f]{40}")
TAG = re.compile(r'(W/)?"?[\w.+:-]{1,200}"?')

HEADERS = {"etag": TAG, "x-linked-etag": TAG, "x-repo-commit": COMMIT}
"""Those of an answer about a file that become names in the cache."""


def guarded() -> Any:
    """The session of the hub's library; whatever it answers is checked."""
    session: Any = get_session()
    hooks = session.event_hooks
    if _check not in hooks["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _check]}
        session.timeout = SILENCE
    return session


def refusal(what: str) -> ModelNotFoundError:
    """The error for an answer that no hub gives."""
    return ModelNotFoundError(
        f"the hub's answer cannot be right ({what}): check the network and HF_ENDPOINT, then run "
        "the same command again"
    )


def check_commit(commit: object) -> str:
    """A commit, which becomes the name of a folder."""
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise refusal(f"the commit {quoted(commit)}")
    return commit


def check_listing(files: Sequence[RepoFile]) -> None:
    """Make sure that names stay within the folder, and that checksums and sizes can be."""
    if len(files) > MOST_FILES:
        raise refusal(f"{len(files)} files")
    for file in files:
        parts = file.path.split("/") if isinstance(file.path, str) else []
        if not parts or not file.path.isprintable() or "\\" in file.path:
            raise refusal(f"a file named {quoted(file.path)}")
        if {"", ".", ".."} & set(parts) or max(map(len, parts)) > 200:
            raise refusal(f"a file named {quoted(file.path)}")
        checksum = file.blob_id if file.lfs is None else file.lfs.sha256
        if not isinstance(checksum, str) or not CHECKSUM.fullmatch(checksum):
            raise refusal(f"the checksum {quoted(checksum)} of {quoted(file.path)}")
        if type(file.size) is not int or not 0 <= file.size < 2**60:
            raise refusal(f"the size {quoted(file.size)} of {quoted(file.path)}")


def _check(response: Any) -> None:
    named = HEADERS if response.request.method == "HEAD" else {}
    for name, form in named.items():
        value = response.headers.get(name)
        if value is not None and not form.fullmatch(value):
            raise refusal(f"the header {name}: {quoted(value)}")
    url = str(response.request.url)
    if "location" in response.headers:
        target = urljoin(url, response.headers["location"])
        old, new = urlsplit(url).scheme, urlsplit(target).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            raise refusal(f"a redirect to {quoted(target)}")
    if "/api/" in url or response.status_code >= 300:
        response.stream = _Bounded(response.stream, "content-encoding" in response.headers)


class _Bounded(http.SyncByteStream):  # type: ignore[misc]
    """A body that ends with an error when it is too long or takes too long."""

    def __init__(self, inner: Any, compressed: bool) -> None:
        self._inner, self._most = inner, COMPRESSED if compressed else LONGEST

    def __iter__(self) -> Iterator[bytes]:
        taken, until = 0, time.monotonic() + SECONDS
        for block in self._inner:
            taken += len(block)
            if taken > self._most or time.monotonic() > until:
                raise refusal("it has no end")
            yield block

    def close(self) -> None:
        self._inner.close()
