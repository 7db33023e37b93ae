"""The head of a checkpoint on the Hugging Face hub, without the rest of the checkpoint.

A safetensors file begins with a header that says where each tensor lies, so those of a head can be
fetched by ranges, a small part of a shard. The hub's checksums are of whole files: what is checked
of a part is that the answer is exactly the part asked for, of the file and revision listed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from huggingface_hub import constants, hf_hub_url, utils
from huggingface_hub.hf_api import RepoFile

from ..errors import ModelBrokenError, ModelNotFoundError, quoted
from ..io import write_atomic
from .download import (
    CHUNK,
    Meter,
    Repository,
    checksum,
    digest_of,
    explained,
    listing,
    locked,
    patiently,
    pull,
    room,
)
from .files import header_length, parse_header
from .hubclient import LONGEST, guarded, refusal
from .progress import DownloadEvent, Pulled
from .sidecars import MADE_FOR, heads_folder

INDEX = "model.safetensors.index.json"
VOCABULARY = "vocab_size"

_utils: Any = utils  # its public names are not all annotated


@dataclass(frozen=True)
class Run:
    """Bytes ``start`` to ``stop`` of a file on the hub."""

    file: RepoFile
    start: int
    stop: int

    @property
    def whole(self) -> bool:
        return (self.start, self.stop) == (0, self.file.size)


@dataclass(frozen=True)
class HeadDownload:
    """A head's tensors, and the file that they become."""

    name: str
    licence: str | None
    repository: Repository
    folder: Path
    prefix: bytes
    """The new file up to its first tensor."""
    runs: tuple[Run, ...]
    """The rest of it, in order."""
    vocabulary: int | None
    """How many ids the checkpoint knows, which a head's tensors do not tell."""

    @property
    def part(self) -> Path:
        return self.folder / "model.safetensors.incomplete"

    @property
    def weights(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def done(self) -> bool:
        if not self.weights.exists() or self.weights.stat().st_size != self.total:
            return False
        with self.weights.open("rb") as file:
            return file.read(len(self.prefix)) == self.prefix

    @property
    def total(self) -> int:
        return len(self.prefix) + sum(it.stop - it.start for it in self.runs)

    @property
    def here(self) -> int:
        if self.done:
            return self.total
        return min(self.part.stat().st_size, self.total) if self.part.exists() else 0

    def missing(self, here: int) -> Iterator[Run]:
        """What is to be fetched where ``here`` bytes have arrived."""
        at = len(self.prefix)
        for run in self.runs:
            stop = at + run.stop - run.start
            if stop > here:
                yield Run(run.file, run.start + max(here - at, 0), run.stop)
            at = stop


def pull_head(name: str) -> Generator[DownloadEvent, None, None]:
    """Download the head of a repository: the repository if it is one, into the hub's cache; of a
    checkpoint that brings one only its tensors, into ``heads_folder()``.

    Raises:
        ModelNotFoundError, ModelBrokenError: as ``pull``; or it has no head, or the hub does not
            send parts of files.
    """
    repository = listing(name)
    with explained(repository):
        found = yield from _head_of(repository)
        if isinstance(found, HeadDownload):
            yield from room([found])
            yield from _fetch(found)
            yield Pulled(name, str(found.folder), found.total)
            return
    yield from pull([name])


T = TypeVar("T")
Asking = Generator[DownloadEvent, None, T]
"""Asks the hub for something that is known when it ends."""


def _head_of(repository: Repository) -> Asking[HeadDownload | None]:
    """The head that a checkpoint brings along; None where the repository is a head itself."""
    from ..heads.naming import depths_of, kind_of, layers_of, number_of, own_tensors

    files = {it.path: it for it in repository.files}
    config = (yield from _json(repository, files["config.json"])) if "config.json" in files else {}
    weights = [it for it in files if it.startswith("model") and it.endswith(".safetensors")]
    headers: dict[str, tuple[int, dict[str, Any]]] = {}
    where: dict[str, str] = {}
    if INDEX in files:
        index = (yield from _json(repository, files[INDEX])).get("weight_map")
        named = index.items() if isinstance(index, dict) else ()
        where = {str(tensor): str(shard) for tensor, shard in named if shard in weights}
    if not where:
        for shard in weights:
            headers[shard] = yield from _header(repository, files[shard])
            where |= dict.fromkeys(headers[shard][1], shard)
    if kind_of(config, where) is not None:
        return None
    own = [it for it in own_tensors(where, layers_of(config)) if any(depths_of({it: it}))]
    if not own:
        raise ModelBrokenError(
            f"{repository.name} has no head that macspec can use: none of its tensors is one's"
        )
    for shard in {where[it] for it in own}:
        if shard not in headers:
            headers[shard] = yield from _header(repository, files[shard])
    tensors = [(where[it], it) for it in own]
    return _planned(repository, files, tensors, headers, number_of(config, VOCABULARY))


def _planned(
    repository: Repository,
    files: dict[str, RepoFile],
    tensors: Sequence[tuple[str, str]],
    headers: dict[str, tuple[int, dict[str, Any]]],
    vocabulary: int | None,
) -> HeadDownload:
    placed = []
    for shard, tensor in tensors:
        start, header = headers[shard]
        if tensor not in header:
            raise refusal(f"{quoted(tensor)} is not where its index says")
        begin, end = (start + int(it) for it in header[tensor]["data_offsets"])
        placed.append((shard, begin, end, tensor, header[tensor]))
    entries: dict[str, Any] = {
        "__metadata__": {"source": repository.id, "commit": repository.commit}
    }
    runs: list[Run] = []
    at = 0
    for shard, begin, end, tensor, header in sorted(placed, key=lambda it: it[:3]):
        offsets = [at, at := at + end - begin]
        entries[tensor] = {key: header[key] for key in ("dtype", "shape")}
        entries[tensor]["data_offsets"] = offsets
        if runs and (runs[-1].file, runs[-1].stop) == (files[shard], begin):
            runs[-1] = Run(files[shard], runs[-1].start, end)
        else:
            runs.append(Run(files[shard], begin, end))
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder = heads_folder() / f"{repository.id.replace('/', '--')}-MTP"
    prefix = len(text).to_bytes(8, "little") + text
    return HeadDownload(
        repository.name, repository.licence, repository, folder, prefix, tuple(runs), vocabulary
    )


def _fetch(head: HeadDownload) -> Iterator[DownloadEvent]:
    meter = Meter(head)
    if not head.done:
        with locked(head.part, head.name) as part:
            if part.read(len(head.prefix)) != head.prefix:
                part.seek(0)
                part.truncate()
                part.write(head.prefix)
                part.flush()
            yield from patiently(
                head.name, lambda: _continued(head, part, meter), lambda: head.here
            )
            os.fsync(part.fileno())
            head.part.rename(head.weights)
    made = {
        MADE_FOR: head.repository.id,
        "revision": head.repository.commit,
        VOCABULARY: head.vocabulary,
    }
    write_atomic(head.folder / "config.json", json.dumps(made, indent=2) + "\n")
    yield from meter.report(head.weights.name, always=True)


def _continued(head: HeadDownload, part: BinaryIO, meter: Meter) -> Iterator[DownloadEvent]:
    """One attempt to fetch what is missing."""
    for run in head.missing(part.seek(0, os.SEEK_END)):
        for block in _range(head.repository, run):
            part.write(block)
            part.flush()
            yield from meter.report(head.weights.name)


def _range(repository: Repository, run: Run) -> Iterator[bytes]:
    """The bytes of a part of a file, and not one more."""
    headers = {**_utils.build_hf_headers(), "Accept-Encoding": "identity"}
    asked = f"bytes {run.start}-{run.stop - 1}/{run.file.size}"
    if not run.whole:
        headers["Range"] = f"bytes={run.start}-{run.stop - 1}"
    url = hf_hub_url(repository.id, run.file.path, revision=repository.commit)
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    path, left = quoted(run.file.path), run.stop - run.start
    with guarded().stream("GET", url, headers=headers, timeout=timeout) as response:
        _utils.hf_raise_for_status(response)
        if response.status_code != 206 and not run.whole:
            raise ModelNotFoundError(
                f"the hub did not send a part of {path} alone: fetch a repository that holds only "
                f"the head, or the whole model with macspec models pull {repository.name}"
            )
        if not run.whole and response.headers.get("content-range") != asked:
            raise refusal(f"it is another part of {path} than asked for")
        for answer in (*response.history, response):
            tag = answer.headers.get("x-linked-etag")
            if tag is not None and tag.removeprefix("W/").strip('"') != checksum(run.file):
                raise refusal(f"{path} is another file than it listed")
        for block in response.iter_bytes(CHUNK):
            left -= len(block)
            if left < 0:
                raise refusal(f"{path} is longer than it said")
            yield block
    if left:
        raise ConnectionError(f"the connection ended {left} bytes early")


def _whole(repository: Repository, run: Run) -> Asking[bytes]:
    """The bytes of a small part, in memory."""
    if run.stop - run.start > LONGEST:
        raise refusal(f"{quoted(run.file.path)} is too large for what it is")
    arrived: list[bytes] = []

    def attempt() -> Iterator[DownloadEvent]:
        arrived.clear()
        arrived.extend(_range(repository, run))
        return iter(())

    yield from patiently(repository.name, attempt, lambda: 0)
    data = b"".join(arrived)
    if run.whole and digest_of(run.file, data) != checksum(run.file):
        raise ModelBrokenError(
            f"{quoted(run.file.path)} of {repository.name} arrived damaged (its checksum is not "
            "the hub's): run the same command again"
        )
    return data


def _json(repository: Repository, file: RepoFile) -> Asking[dict[str, Any]]:
    text = yield from _whole(repository, Run(file, 0, file.size))
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{quoted(file.path)} is no JSON") from error
    return read if isinstance(read, dict) else {}


def _header(repository: Repository, file: RepoFile) -> Asking[tuple[int, dict[str, Any]]]:
    """Where the tensors of a safetensors file begin, and its header."""
    try:
        start = yield from _whole(repository, Run(file, 0, min(8, file.size)))
        length = header_length(start, file.size)
        text = yield from _whole(repository, Run(file, 8, 8 + length))
        return 8 + length, parse_header(text, file.size)
    except ValueError as error:
        raise ModelBrokenError(f"{quoted(file.path)} of {repository.name} {error}") from error
