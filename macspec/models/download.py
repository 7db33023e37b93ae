"""Downloads from the Hugging Face hub that survive a broken connection, reported as events.

Files go into the hub's own cache, under the names its library looks for. That library forgets a
partial file when a download fails; here it stays in the cache, and the next attempt, in this
process or a later one, resumes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from huggingface_hub import (
    HfApi,
    constants,
    errors,
    hf_hub_url,
    snapshot_download,
    utils,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile

from ..errors import ModelBrokenError, ModelNotFoundError, brief, quoted
from .files import PATTERNS, explain, without_weights
from .hubclient import MOST_FILES, SILENCE, check_commit, check_listing, guarded, http, refusal
from .progress import DownloadEvent, Listed, Progress, Pulled, Retrying, size

# Its public names are not all annotated.
_utils: Any = utils


PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0)
"""Seconds to wait before each new attempt while nothing arrives; then the download ends."""

TRANSIENT = (408, 429, 500, 502, 503, 504)
"""Status codes of a server that is worth asking again."""

CHUNK = 2**20
"""Bytes taken from the network and hashed at a time."""

INTERVAL = 0.2
"""Seconds between two reports of progress."""

RESERVE = 512 * 2**20
"""Bytes that a download leaves free on the disk."""

LICENCE = "license:"
"""Before the licence in a repository's tags."""

LARGEST = 50 * 10**9
"""Bytes above which the hub serves a file only to its own library."""


class Arriving(Protocol):
    """What is downloaded under one name."""

    @property
    def name(self) -> str: ...

    @property
    def total(self) -> int:
        """Its bytes."""
        ...

    @property
    def here(self) -> int:
        """Bytes of it that have arrived."""
        ...

    @property
    def licence(self) -> str | None:
        """As the hub has it; None where it has none."""
        ...


@dataclass(frozen=True)
class Repository:
    """A repository at one commit."""

    name: str
    id: str
    revision: str | None
    commit: str
    files: tuple[RepoFile, ...]
    licence: str | None = None

    @property
    def total(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def here(self) -> int:
        """Bytes of it that are in the cache."""
        return sum(self.present(file) for file in self.files)

    def blob(self, file: RepoFile) -> Path:
        home = repo_folder_name(repo_id=self.id, repo_type="model")
        return Path(constants.HF_HUB_CACHE) / home / "blobs" / checksum(file)

    def partial(self, file: RepoFile) -> Path:
        return self.blob(file).with_name(f"{checksum(file)}.incomplete")

    def present(self, file: RepoFile) -> int:
        """Bytes of a file that are in the cache."""
        if self.blob(file).exists():
            return file.size
        try:
            return min(self.partial(file).stat().st_size, file.size)
        except OSError:
            return 0


def listing(name: str) -> Repository:
    """Ask the hub for a repository's newest commit, or that of ``id@revision``."""
    id, _, revision = name.partition("@")
    try:
        guarded()
        api = HfApi()
        info = api.model_info(id, revision=revision or None, timeout=SILENCE)
        commit = check_commit(info.sha)
        entries = api.list_repo_tree(id, revision=commit, recursive=True)
        found = [entry for entry in islice(entries, MOST_FILES + 1) if isinstance(entry, RepoFile)]
        check_listing(found)
    except Exception as error:
        raise ModelNotFoundError(explain(error, id, revision or None)) from error
    wanted = set(_utils.filter_repo_objects([it.path for it in found], allow_patterns=PATTERNS))
    if not any(path.startswith("model") and path.endswith(".safetensors") for path in wanted):
        raise ModelBrokenError(without_weights(id, [it.path for it in found]))
    files = tuple(it for it in found if it.path in wanted)
    return Repository(name, id, revision or None, commit, files, _licence(info.tags))


def _licence(tags: Any) -> str | None:
    """The licence among a repository's tags, which may be anything."""
    known = (it.removeprefix(LICENCE) for it in tags or () if isinstance(it, str) and LICENCE in it)
    return next((quoted(it) for it in known if it), None)


def checksum(file: RepoFile) -> str:
    """SHA-256 of a large file, git's object id of a small one; its name in the cache."""
    return file.blob_id if file.lfs is None else file.lfs.sha256


def _digest(file: RepoFile) -> Any:
    """What makes the checksum of its bytes."""
    if file.lfs is not None:
        return hashlib.sha256()
    return hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)


def digest_of(file: RepoFile, data: bytes) -> str:
    """The checksum of a file's whole content."""
    digest = _digest(file)
    digest.update(data)
    return str(digest.hexdigest())


def pull(names: Sequence[str]) -> Generator[DownloadEvent, None, None]:
    """Download models into the hub's cache, each file checked against the hub's checksum.

    They are named by id, or ``id@revision``. Nothing is fetched unless all of it fits on the disk.
    Closing the generator stops it; what has arrived stays for the next time.

    Raises:
        ModelNotFoundError: there is no such model, it may not be fetched, the connection stayed
            broken, or the disk is too small.
        ModelBrokenError: it has no weights that macspec loads, or it arrived damaged.
    """
    repositories = [listing(name) for name in dict.fromkeys(names)]
    yield from room(repositories)
    for repository in repositories:
        with explained(repository):
            yield from _fetch(repository)
            # Links the files, remembers the revision, and has nothing left to fetch.
            folder = snapshot_download(
                repository.id,
                revision=repository.revision,
                allow_patterns=PATTERNS,
                tqdm_class=_Silent,
            )
        yield Pulled(repository.name, folder, repository.total)


def room(repositories: Sequence[Arriving]) -> Iterator[Listed]:
    """Say what there is to download, and make sure that it fits on the disk."""
    cache = Path(constants.HF_HUB_CACHE)
    free = shutil.disk_usage(next(it for it in (cache, *cache.parents) if it.exists())).free
    names = tuple(repository.name for repository in repositories)
    total = sum(repository.total for repository in repositories)
    present = sum(repository.here for repository in repositories)
    yield Listed(names, total, present, free, tuple(it.licence for it in repositories))
    missing = total - present
    if missing and missing + RESERVE > free:
        raise ModelNotFoundError(
            f"{' and '.join(names)}: {size(missing)} to download, but only {size(free)} is free in "
            f"{constants.HF_HUB_CACHE}: free {size(missing + RESERVE - free)} more, or set HF_HOME "
            "to a folder on another disk"
        )


def _fetch(repository: Repository) -> Iterator[DownloadEvent]:
    """Download the missing files of a repository into the cache, small ones first."""
    meter = Meter(repository)
    for file in sorted(repository.files, key=lambda file: file.size):
        if not repository.blob(file).exists() and file.size <= LARGEST:
            yield from patiently(
                repository.name,
                lambda it=file: _stream(repository, it, meter),  # type: ignore[misc]
                lambda it=file: repository.present(it),  # type: ignore[misc]
            )


def patiently(
    name: str, attempt: Callable[[], Iterator[DownloadEvent]], arrived: Callable[[], int]
) -> Iterator[DownloadEvent]:
    """Attempt a download until it succeeds, or nothing arrives any more.

    Args:
        arrived: bytes so far.
    """
    failures = 0
    while True:
        before = arrived()
        try:
            yield from attempt()
            return
        except Exception as error:
            if not _transient(error):
                raise
            failures = 0 if arrived() > before else failures
            if failures == len(PAUSES):
                raise
            yield Retrying(name, brief(error), PAUSES[failures])
            time.sleep(PAUSES[failures])
            failures += 1


def _transient(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, errors.HfHubHTTPError):
        return error.response.status_code in TRANSIENT
    return _disconnected(error)


def _disconnected(error: Exception) -> bool:
    """Whether the connection broke; a proxy that refuses, or a bad certificate, will not change."""
    broken = isinstance(error, http.TransportError | ConnectionError)
    if isinstance(error, http.UnsupportedProtocol | http.TooManyRedirects):
        return False
    return broken and not isinstance(error, http.ProxyError) and "SSL" not in str(error)


def _stream(repository: Repository, file: RepoFile, meter: Meter) -> Iterator[DownloadEvent]:
    """One attempt to download what is missing of a file; what has arrived stays if it fails."""
    with locked(repository.partial(file), repository.name) as part:
        digest = _digest(file)
        while block := part.read(CHUNK):
            digest.update(block)
        here = part.tell()
        if here < file.size:
            headers = {**_utils.build_hf_headers(), "Accept-Encoding": "identity"}
            if here:
                headers["Range"] = f"bytes={here}-"
            url = hf_hub_url(repository.id, file.path, revision=repository.commit)
            timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
            with guarded().stream("GET", url, headers=headers, timeout=timeout) as response:
                _utils.hf_raise_for_status(response)
                if here and response.status_code != 206:
                    part.seek(0)
                    part.truncate()
                    digest, here = _digest(file), 0
                for block in response.iter_bytes(CHUNK):
                    if here + len(block) > file.size:
                        part.truncate(0)
                        raise refusal(f"{quoted(file.path)} is longer than it said")
                    part.write(block)
                    digest.update(block)
                    here += len(block)
                    yield from meter.report(file.path)
        if here < file.size:
            raise ConnectionError(f"the connection ended after {here} of {file.size} bytes")
        if here > file.size or digest.hexdigest() != checksum(file):
            part.truncate(0)
            raise ModelBrokenError(
                f"{file.path} of {repository.name} arrived damaged ({here} bytes, and its "
                "checksum is not the hub's): run the same command again"
            )
        part.flush()
        os.fsync(part.fileno())
        repository.partial(file).rename(repository.blob(file))
    yield from meter.report(file.path, always=True)


@contextmanager
def locked(path: Path, name: str) -> Iterator[BinaryIO]:
    """A partial file, locked for this process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ModelNotFoundError(
                f"another macspec is downloading {name}: wait for it, or stop it"
            ) from error
        part.seek(0)
        yield part


@contextmanager
def explained(repository: Repository) -> Iterator[None]:
    """Report what goes wrong with a repository in one line."""
    try:
        yield
    except (ModelBrokenError, ModelNotFoundError):
        raise
    except Exception as error:
        if _disconnected(error):
            raise ModelNotFoundError(
                f"the connection to the hub broke while downloading {repository.name} "
                f"({brief(error)}): run the same command again to resume"
            ) from error
        why = explain(error, repository.id, repository.revision)
        raise ModelNotFoundError(why) from error


class _Silent(_utils.tqdm):  # type: ignore[misc]
    """No progress bar of the library's own."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{**settings, "disable": True})


class Meter:
    """Counts what has arrived, and its rate."""

    def __init__(self, arriving: Arriving) -> None:
        self._arriving = arriving
        self._marks = deque([(time.monotonic(), arriving.here)], maxlen=26)

    def report(self, file: str, *, always: bool = False) -> Iterator[Progress]:
        """The progress while a file arrives, if the last report is long enough ago."""
        now = time.monotonic()
        if always or now - self._marks[-1][0] >= INTERVAL:
            begun, before = self._marks[0]
            done = self._arriving.here
            self._marks.append((now, done))
            rate = max(done - before, 0) / (now - begun) if now > begun else 0.0
            yield Progress(self._arriving.name, file, done, self._arriving.total, rate)
