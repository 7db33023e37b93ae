"""Self-tests are remembered for the pair, the macspec and the MLX that they were made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from macspec import checked
from macspec.checked import KEPT, last_check, remember_check


def test_a_pair_is_known_by_its_models(tmp_path: Path) -> None:
    assert last_check("t", "d", 1, tmp_path) is None
    remember_check("t", "d", 1, passed=True, at=0.0, folder=tmp_path)
    remember_check("t", None, 1, passed=False, folder=tmp_path)
    check = last_check("t", "d", 1, tmp_path)
    assert check is not None
    assert check.passed
    assert str(check).startswith("passed on 19")
    failed = last_check("t", None, 1, tmp_path)
    assert failed is not None
    assert str(failed).startswith("FAILED on 2")
    assert last_check("t", "d", 2, tmp_path) is None


def test_another_version_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_check("t", "d", 1, passed=True, folder=tmp_path)
    monkeypatch.setattr(checked, "version", lambda name: "99")
    assert last_check("t", "d", 1, tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b'{"[\\"t\\", \\"d\\", 1]": 5}'])
def test_a_damaged_file_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checks.json").write_bytes(content)
    assert last_check("t", "d", 1, tmp_path) is None
    remember_check("t", "d", 1, passed=True, folder=tmp_path)
    assert last_check("t", "d", 1, tmp_path) is not None


def test_it_stays_small_and_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        remember_check(f"t{number}", None, 1, passed=True, folder=tmp_path)
    assert len(json.loads((tmp_path / "checks.json").read_text())) == KEPT
    assert last_check("t0", None, 1, tmp_path) is None
    (tmp_path / "file").touch()
    remember_check("t", None, 1, passed=True, folder=tmp_path / "file")
