"""Nobody but the user reads what macspec writes, and nobody else decides where it is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from macspec import diagnostics
from macspec.checked import remember_check
from macspec.config.file import change_file, create_file
from macspec.config.paths import config_file, data_folder, state_folder
from macspec.config.schema import SETTINGS
from macspec.control import AcceptanceEstimate, ControlState, CostCurve
from macspec.drafters import Corpus
from macspec.errors import BadOptionError, MacspecError
from macspec.io import private_folder
from macspec.store import Store, store_path
from macspec.store.repair import repair
from macspec.worker import Log
from macspec.worker.registry import Registry


@pytest.fixture(params=[0, 0o022, 0o077, 0o177])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "new" / "home"))
    return tmp_path / "new"


def write_everything() -> None:
    """What a user's files are written by."""
    store = Store(store_path())
    reply = store.reply((chat := store.new_chat()).id, store.add(chat.id, None, "a").id)
    reply.append("b")
    reply.save()
    reply.finish()
    store.close()
    repair(store_path())
    create_file(config_file())
    change_file(config_file(), SETTINGS["speculation.depth"], 3)
    Log().write(b"x\n")
    Registry().enter("a", 1, 2)
    remember_check("a", None, 1, passed=True)
    diagnostics.report_file(None, None)
    ControlState(state_folder() / "costs" / "a.json", {}).save(CostCurve(), AcceptanceEstimate())
    corpus = Corpus.open(data_folder() / "corpus", "k")
    corpus.add(list(np.arange(50)))
    corpus.save()


@pytest.mark.usefixtures("umask")
def test_only_the_user_can_read_what_is_written(home: Path) -> None:
    write_everything()
    written = [home, *home.rglob("*")]
    assert len(written) > 12
    for path in written:
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_a_link_of_another_user_is_refused(home: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o777)
    os.chown(theirs, 12345, 12345)
    home.mkdir()
    (home / "home").symlink_to(theirs)
    with pytest.raises(OSError, match="is a link of another user's"):
        private_folder(home / "home" / "state")
    store = Store(store_path())
    assert "is a link of another user's" in (store.trouble or "")
    store.close()
    with pytest.raises(BadOptionError, match="is a link of another user's"):
        create_file(config_file())
    with pytest.raises(MacspecError, match="is a link of another user's"):
        diagnostics.report_file(None, None)
    Log().write(b"x\n")
    remember_check("a", None, 1, passed=True)
    assert list(theirs.iterdir()) == []
    (home / "home").unlink()
    mine = tmp_path / "mine"
    mine.mkdir()
    (home / "home").symlink_to(mine)
    os.lchown(home / "home", 12345, 12345)
    with pytest.raises(OSError, match="is a link of another user's"):
        private_folder(home / "home" / "state")


def test_a_link_of_the_users_own_is_followed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    home.mkdir()
    (home / "home").symlink_to(tmp_path / "mine")
    write_everything()
    assert (tmp_path / "mine" / "data" / "chats" / "chats.db").exists()
