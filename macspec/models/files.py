"""From what the user typed to a complete model folder on this machine.

Safetensors files are checked without reading a tensor. Their format
(https://github.com/huggingface/safetensors#format): eight bytes with the length of the header, a
JSON header that gives every tensor's type, shape and byte range, then the bytes.

Nothing here imports MLX.
"""

from __future__ import annotations

import errno
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any
from urllib.request import getproxies

from huggingface_hub import constants, errors, list_repo_files, snapshot_download

from ..errors import (
    BadOptionError,
    MacspecError,
    ModelBrokenError,
    ModelNotFoundError,
    brief,
    is_panic,
    quoted,
)
from .folder import check_files
from .hubclient import guarded, http

PATTERNS = [
    "*.json",
    "model*.safetensors",
    "tokenizer.model",
    "tiktoken.model",
    "*.tiktoken",
    "*.txt",
    "*.jsonl",
    "*.jinja",
]
"""What is downloaded: the files that mlx-lm reads, without code."""

MOST_VALUES = 5_000_000
"""In a header; each may take a hundred times the memory of its text."""

MOST_DIMENSIONS = 32

NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)

BITS = {
    name: bits
    for bits, names in (
        (8, "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0"),
        (16, "U16 I16 F16 BF16"),
        (32, "U32 I32 F32"),
        (64, "U64 I64 F64"),
    )
    for name in names.split()
}
"""Of one number, by type; a type that is not here is not checked."""

AGAIN = "copy it again, or for a Hugging Face id: hf download ID --force-download"

LOGIN = "log in with 'hf auth login' or set HF_TOKEN"


def locate(name: str, *, trust_remote_code: bool = False) -> Path:
    """The folder of a model.

    A folder on this machine is taken as it is. Anything else is an id on the Hugging Face hub,
    with ``@revision`` to pin one. A complete copy in the hub's cache is used without asking the
    network, so an update on the hub never changes a conversation; ``hf download ID`` fetches it.
    With ``trust_remote_code`` a repository's Python files are fetched too.

    Raises:
        BadOptionError: the name is empty, or pins the revision of a folder.
        ModelNotFoundError: there is no such model, or it could not be fetched.
        ModelBrokenError: it has no weights that macspec loads.
    """
    path = Path(os.path.expanduser(name))
    repository, _, revision = name.partition("@")
    if not name.strip():
        raise BadOptionError("the model's name is empty: give a folder or a Hugging Face id")
    if os.path.isdir(path):
        return path
    if name.lower().endswith(".gguf"):
        raise ModelBrokenError(without_weights(name, [name]))
    if os.path.isfile(path):
        raise ModelNotFoundError(f"{name} is a file: give the folder it is in")
    if revision and os.path.isdir(os.path.expanduser(repository)):
        raise BadOptionError(
            f"{repository} is a folder and has no revisions: leave out @{revision}"
        )
    return _fetch(repository, revision or None, PATTERNS + ["*.py"] * trust_remote_code)


def _fetch(repository: str, revision: str | None, patterns: list[str]) -> Path:
    for local in (True, False):
        try:
            guarded()
            folder = Path(
                snapshot_download(
                    repository, revision=revision, allow_patterns=patterns, local_files_only=local
                )
            )
        except Exception as error:
            if local and isinstance(error, errors.LocalEntryNotFoundError):
                continue
            raise ModelNotFoundError(explain(error, repository, revision)) from error
        if local and _complete(folder):
            return folder
    if not any(folder.glob("model*.safetensors")):
        raise ModelBrokenError(without_weights(repository, _listing(repository, revision, folder)))
    return folder


def _complete(folder: Path) -> bool:
    """Whether a folder is complete; an interrupted download is not."""
    try:
        check_weights(folder.name, folder)
    except ModelBrokenError:
        return False
    return (folder / "config.json").exists() and any(folder.glob("*token*"))


def _listing(repository: str, revision: str | None, folder: Path) -> list[str]:
    """The names of a repository's files; only those downloaded if the hub does not answer."""
    try:
        return list_repo_files(repository, revision=revision)
    except Exception:
        return [file.name for file in folder.iterdir()]


def explain(error: Exception, repository: str, revision: str | None) -> str:
    """One line for an error of ``snapshot_download``: what is wrong and what to do."""
    causes = list(_causes(error))
    refused = next((cause for cause in causes if isinstance(cause, MacspecError)), None)
    if refused is not None:
        return str(refused)
    texts = " ".join(str(cause) for cause in causes)
    answers = (cause for cause in causes if isinstance(cause, errors.HfHubHTTPError))
    status = next((answer.response.status_code for answer in answers), None)
    failures = [cause for cause in causes if isinstance(cause, OSError)]

    if isinstance(error, errors.HFValidationError):
        return (
            f"{repository}: no such folder: check the path, or give a Hugging Face id like "
            "owner/name"
        )
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repository} is gated: accept its licence at https://hf.co/{repository}, then {LOGIN}"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{repository}: no such folder here, and no such model on the Hugging Face hub: "
            f"check the spelling; if it is private, {LOGIN}"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {revision}: check the branch, tag or commit after @"
    if {errno.ENOSPC, errno.EDQUOT} & {it.errno for it in failures} or "No space left" in texts:
        return (
            f"the disk is full while downloading {repository}: free some space, or set HF_HOME to "
            "a folder on another disk, and run the same command again"
        )
    if any(failure.errno in NOT_WRITABLE and failure.filename for failure in failures):
        return (
            f"{repository} cannot be stored in {constants.HF_HUB_CACHE} ({brief(error)}): "
            "set HF_HOME to a writable folder"
        )
    if any(isinstance(cause, errors.OfflineModeIsEnabled) for cause in causes):
        pinned = f" --revision {revision}" if revision else ""
        return (
            f"{repository} is incomplete in the hub's cache {constants.HF_HUB_CACHE} and "
            f"HF_HUB_OFFLINE is set: unset it, or run 'hf download {repository}{pinned}' while "
            "online"
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or "SSL" in texts:
        return (
            f"{repository} cannot be fetched: the hub's TLS certificate is not trusted here: "
            "behind a company proxy set SSL_CERT_FILE to its certificate, and check the clock"
        )
    unreachable = isinstance(
        error, errors.LocalEntryNotFoundError | ConnectionError | TimeoutError | http.TransportError
    )
    proxy = any(type(cause).__name__ == "ProxyError" for cause in causes)
    if proxy or (unreachable and "https" in getproxies() and status is None):
        return (
            f"{repository} cannot be fetched through the proxy ({brief(causes[-1])}): check "
            "HTTPS_PROXY, or set NO_PROXY=huggingface.co"
        )
    if status == 401:
        return f"the hub rejects the login for {repository} (401): {LOGIN} with a valid token"
    if status == 403:
        return (
            f"this login may not read {repository} (403): request access at "
            f"https://hf.co/{repository}, or {LOGIN} with a token that has it"
        )
    if status == 429:
        return f"the hub limits requests (429): wait a few minutes, or {LOGIN}, then try again"
    if status is not None:
        return f"the hub returned {status} for {repository}: try again later ({brief(error)})"
    if isinstance(error, errors.IncompleteSnapshotError):
        return (
            f"{repository} is only partly downloaded and the hub cannot be reached: connect and "
            "run the same command again"
        )
    if unreachable:
        return (
            f"{repository}: no such folder here, and the Hugging Face hub cannot be reached: "
            "connect to the network, or give a folder"
        )
    return f"{repository} cannot be downloaded ({brief(error)}): run the same command again"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, each once."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def check_weights(name: str, folder: Path) -> None:
    """Make sure that a folder's weights, ``model*.safetensors``, are present and complete.

    Raises:
        ModelBrokenError: no such file, one that the index names is missing, or one is damaged.
    """
    check_files(name, folder)
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelBrokenError(without_weights(name, [file.name for file in folder.iterdir()]))
    if any(sign in str(folder) for sign in "[]*?"):
        raise ModelBrokenError(
            f"{name}: mlx-lm finds no weights in a folder whose path contains [ ] * or ?: rename it"
        )
    held: set[str] = set()
    for file in files:
        with broken(f"{name}: {quoted(file.name)} cannot be read", "check its permissions"):
            try:
                held.update(read_header(file))
            except ValueError as error:
                raise ModelBrokenError(f"{name}: {quoted(file.name)} {error}: {AGAIN}") from error
    if absent := _absent_shards(name, folder, held):
        raise ModelBrokenError(
            f"{name}: {quoted(', '.join(absent[:3]))}{' and more' if len(absent) > 3 else ''} of "
            f"model.safetensors.index.json is missing: {AGAIN}"
        )


def without_weights(name: str, files: list[str]) -> str:
    """Why a folder or repository with these files cannot be loaded, and what to do instead."""
    advice = "choose a safetensors or MLX version of it (many are at hf.co/mlx-community)"
    endings = {Path(file).suffix.lower() for file in files}
    if ".safetensors" in endings:
        return f"{name}: no file is named model*.safetensors, which is what mlx-lm loads: {advice}"
    if ".gguf" in endings:
        return f"{name} is a GGUF model, which macspec does not load: {advice}"
    if endings & {".bin", ".pt", ".pth", ".ckpt"}:
        return f"{name} has only PyTorch weights, which macspec does not load: {advice}"
    return f"{name} has no weights (model*.safetensors): {advice}"


def read_header(file: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by name.

    Raises:
        ValueError: the file is damaged; the message continues a sentence about the file.
        OSError: the file cannot be read.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        text = stream.read(header_length(stream.read(8), size))
    return parse_header(text, size)


def header_length(start: bytes, size: int) -> int:
    """Bytes of the header of a safetensors file, by its first 8 bytes; raises as ``read_header``.

    Args:
        size: of the file.
    """
    length = int.from_bytes(start, "little")
    if start == b"version ":
        raise ValueError("is a Git LFS pointer, not the weights (git lfs pull fetches them)")
    if size < 8 or length > size - 8:
        raise ValueError(f"is truncated: it ends within its header, after {size} bytes")
    # The longest that the format allows.
    if length > 100_000_000:
        raise ValueError("is not a safetensors file: its header would be over 100 MB")
    return length


def parse_header(text: bytes, size: int) -> dict[str, Any]:
    """The tensors that a header names, which must account for all ``size`` bytes of the file;
    raises as ``read_header``."""
    try:
        if sum(map(text.count, b",[{")) > MOST_VALUES:
            raise ValueError("it has too many values")
        header = json.loads(text)
        tensors = {key: tensor for key, tensor in header.items() if key != "__metadata__"}
        ends = [_end(key, tensor) for key, tensor in tensors.items()]
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"has a damaged header ({brief(error)})") from error
    except RecursionError as error:
        raise ValueError(f"has a damaged header ({brief(error)})") from error
    wanted = 8 + len(text) + max(ends, default=0)
    if size < wanted:
        raise ValueError(f"is truncated: it has {size} of {wanted} bytes")
    if size > wanted:
        raise ValueError(f"is damaged: it has {size} bytes, but its header accounts for {wanted}")
    return tensors


def _end(name: str, tensor: dict[str, Any]) -> int:
    """The byte after a tensor's last, which its type and shape must agree with."""
    begin, end = (int(offset) for offset in tensor["data_offsets"])
    bits, shape = BITS.get(tensor["dtype"]), tensor["shape"]
    if len(shape) > MOST_DIMENSIONS or not all(0 <= size < 2**63 for size in shape):
        raise ValueError(f"the shape of {name} cannot be")
    if not 0 <= begin <= end or (bits and (end - begin) * 8 != bits * prod(shape)):
        raise ValueError(f"the size of {name} does not match its type and shape")
    return end


@contextmanager
def broken(what: str, advice: str = AGAIN) -> Iterator[None]:
    """Report another library's error as ModelBrokenError: what fails, why, and what to do."""
    try:
        yield
    except MacspecError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ModelBrokenError(f"{what} ({brief(error)}): {advice}") from error


def _absent_shards(name: str, folder: Path, held: set[str]) -> list[str]:
    """Files that the index names and that are missing, if a tensor is missing with them.

    Folders whose shards were merged often keep the old index; those are complete.
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    with broken(f"{name}: {index.name} cannot be read"):
        shards = json.loads(index.read_bytes())["weight_map"]
        lost = {str(shard) for tensor, shard in shards.items() if tensor not in held}
    return sorted(shard for shard in lost if not (folder / shard).is_file())
