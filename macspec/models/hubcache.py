"""The models in the hub's cache on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from huggingface_hub.file_download import repo_folder_name

from ..errors import ModelBrokenError, ModelNotFoundError, brief
from .files import check_weights
from .scan import FoundModel
from .sidecars import kept_heads


def cached_models() -> list[FoundModel]:
    """The language models of the hub's cache at their newest revisions there, by name."""
    found = []
    homes = Path(constants.HF_HUB_CACHE).glob("models--*--*")
    begun = {"/".join(home.name.split("--")[1:]): home for home in homes}
    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, ValueError):
        repositories = frozenset()
    for repository in repositories:
        if repository.repo_type != "model":
            continue
        begun.pop(repository.repo_id, None)
        newest = max(
            repository.revisions,
            key=lambda revision: ("main" in revision.refs, revision.last_modified),
            default=None,
        )
        if newest is None or not (newest.snapshot_path / "config.json").exists():
            continue
        name, folder, size = repository.repo_id, newest.snapshot_path, repository.size_on_disk
        stamp = f"{newest.commit_hash} {size}"
        found.append(FoundModel(name, str(folder), size, _missing(name, folder), stamp))
    for name, home in begun.items():
        if size := _size(home):
            found.append(FoundModel(name, str(home), size, _begun(name), f" {size}"))
    return sorted(found, key=lambda model: model.name.lower())


def cached_folder(name: str) -> Path | None:
    """The folder of a model, by its id on the hub; None where it is absent or incomplete."""
    complete = (it for it in cached_models() if it.name == name and it.missing is None)
    return next((Path(it.folder) for it in complete), None)


def remove(names: Iterable[str]) -> None:
    """Delete models from the hub's cache, with all of their revisions and parts, and heads from
    macspec's own folder.

    Raises:
        ModelNotFoundError: one cannot be deleted.
    """
    for name in names:
        try:
            shutil.rmtree(Path(name) if Path(name) in kept_heads() else _home(name))
        except OSError as error:
            raise ModelNotFoundError(
                f"{name} cannot be deleted ({brief(error)}): check the permissions of "
                f"{constants.HF_HUB_CACHE}"
            ) from error


def _home(name: str) -> Path:
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")


def _size(home: Path) -> int:
    """Bytes of a repository's files, whole or in part."""
    return sum(file.stat().st_size for file in (home / "blobs").glob("*") if file.is_file())


def _missing(name: str, folder: Path) -> str | None:
    try:
        check_weights(name, folder)
    except ModelBrokenError as error:
        if any((_home(name) / "blobs").glob("*.incomplete")):
            return _begun(name)
        return str(error).removeprefix(f"{name}: ")
    return None


def _begun(name: str) -> str:
    return f"its download is incomplete: resume it with macspec models pull {name}"
