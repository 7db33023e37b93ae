"""A repository on the Hugging Face hub: which of its files are wanted, and which are here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, utils
from huggingface_hub.file_download import repo_folder_name

from ..errors import ModelBrokenError
from .hub import PATTERNS, explain
from .weights import without_weights

# What it offers to other programs without saying so.
_utils: Any = utils


@dataclass(frozen=True)
class File:
    """A file of a repository."""

    path: str
    size: int
    checksum: str
    """SHA-256 of a large file, git's object id of a small one; its name in the cache."""
    large: bool

    def hash(self) -> Any:
        if self.large:
            return hashlib.sha256()
        return hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)


@dataclass(frozen=True)
class Repository:
    """A repository at one commit."""

    name: str
    id: str
    revision: str | None
    commit: str
    files: tuple[File, ...]

    @property
    def total(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def here(self) -> int:
        """Bytes of it that are in the cache."""
        return sum(self.present(file) for file in self.files)

    def blob(self, file: File) -> Path:
        home = repo_folder_name(repo_id=self.id, repo_type="model")
        return Path(constants.HF_HUB_CACHE) / home / "blobs" / file.checksum

    def partial(self, file: File) -> Path:
        return self.blob(file).with_name(f"{file.checksum}.incomplete")

    def present(self, file: File) -> int:
        """Bytes of a file that are in the cache."""
        if self.blob(file).exists():
            return file.size
        try:
            return min(self.partial(file).stat().st_size, file.size)
        except OSError:
            return 0


def listing(name: str) -> Repository:
    """Ask the hub for a repository's newest commit, or that of ``id@revision``.

    Raises:
        ModelNotFoundError: the hub does not tell.
        ModelBrokenError: it holds no weights that macspec loads.
    """
    id, _, revision = name.partition("@")
    try:
        api = HfApi()
        commit = api.model_info(id, revision=revision or None).sha
        assert commit is not None
        entries: Any = api.list_repo_tree(id, revision=commit, recursive=True)
        found = [entry for entry in entries if hasattr(entry, "blob_id")]
    except Exception as error:
        raise explain(error, id, revision or None) from error
    paths = [entry.path for entry in found]
    wanted = set(_utils.filter_repo_objects(paths, allow_patterns=PATTERNS))
    if not any(path.startswith("model") and path.endswith(".safetensors") for path in wanted):
        raise ModelBrokenError(without_weights(id, paths))
    files = tuple(
        File(
            path=entry.path,
            size=entry.size,
            checksum=entry.blob_id if entry.lfs is None else entry.lfs.sha256,
            large=entry.lfs is not None,
        )
        for entry in found
        if entry.path in wanted
    )
    return Repository(name, id, revision or None, commit, files)
