"""Files that are written whole or not at all, and files that show that a process lives."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

STATE_LIMIT = 16 * 2**20
"""Bytes of a file with state; they have some kilobytes."""


class Kept(Protocol):
    """State that is kept on disk as JSON."""

    def as_dict(self) -> dict[str, Any]: ...

    def restore(self, stored: Mapping[str, Any]) -> None: ...


def write_atomic(
    path: Path,
    data: str | bytes,
    *,
    mode: int = 0o600,
    keep_mode: bool = False,
    make_folder: bool = False,
    durable: bool = False,
    replace: bool = True,
) -> None:
    """Write a file; other processes, and a crash, see the old content or the new one.

    Args:
        data: text is written as UTF-8.
        mode: permissions of the new file, less the umask.
        keep_mode: take over the permissions of a file that is replaced.
        durable: wait until the data has reached the disk.

    Raises:
        OSError: it cannot be written, or exists and ``replace`` is off (FileExistsError).
    """
    content = data.encode() if isinstance(data, str) else data
    if make_folder and mode == 0o600:
        private_folder(path.parent)
    elif make_folder:
        # Who may read the file may search its folder.
        path.parent.mkdir(parents=True, exist_ok=True, mode=mode | (mode & 0o444) >> 2)
    unfinished = path.with_name(f".{path.name[:40]}-{secrets.token_hex(4)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            if keep_mode:
                with suppress(FileNotFoundError):
                    os.fchmod(descriptor, path.stat().st_mode & 0o777)
            if durable:
                file.flush()
                os.fsync(descriptor)
        if replace:
            os.replace(unfinished, path)
        else:
            os.link(unfinished, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)


def private_folder(path: Path) -> None:
    """Make a folder, and those that it is in, for this user alone whatever the umask.

    Raises:
        OSError: it cannot be made, or is reached through a link of another user's.
    """
    path = path.absolute()
    for folder in (*reversed(path.parents), path):
        if folder.is_symlink():
            owners = {folder.lstat().st_uid, folder.stat().st_uid}
            if not owners <= {0, os.geteuid()}:
                raise OSError(errno.EINVAL, f"{folder} is a link of another user's")
        elif not folder.exists():
            # Another process may be faster.
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                folder.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    # Opening a pipe waits for its writer without the flag.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            kind = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
            raise OSError(kind, os.strerror(kind) if kind == errno.EISDIR else "Not a file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"Over {most >> 10} KB")
    return data


def read_json(path: Path) -> Any:
    """What a small JSON file of macspec's own holds; None: there is none, or it is damaged."""
    try:
        return json.loads(read_regular(path, STATE_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None


class LockedFile:
    """A new file that stays locked while this process lives, however it ends.

    Raises:
        OSError: the folder cannot be written, or files in it cannot be locked.
    """

    def __init__(self, folder: Path, suffix: str, content: bytes = b"") -> None:
        # Locked before it has its name, so that nobody takes it for a dead process's.
        descriptor, aside = tempfile.mkstemp(dir=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, content)
            os.rename(aside, aside + suffix)
        except OSError:
            os.unlink(aside)
            os.close(descriptor)
            raise
        self.path, self._descriptor = Path(aside + suffix), descriptor

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    """Whether the process of a ``LockedFile`` lives."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
