"""Models made smaller by mlx-lm, which macspec then loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from modelfolders import POCKET

from macspec import load_pair
from macspec.errors import BadOptionError, ModelBrokenError, ModelNotFoundError
from macspec.models import conversion
from macspec.models.conversion import convert

TARGET, DRAFT = (str(POCKET / role) for role in ("target", "draft"))


def setting(folder: Path) -> dict[str, int]:
    return json.loads((folder / "config.json").read_text())["quantization"]


def test_quantized_models_are_a_pair(tmp_path, capfd):
    target = convert(TARGET, str(tmp_path / "target"), bits=4)
    draft = convert(DRAFT, str(tmp_path / "draft"), bits=8, group=32)
    assert (setting(target)["bits"], setting(draft)["bits"]) == (4, 8)
    assert (setting(target)["group_size"], setting(draft)["group_size"]) == (64, 32)
    assert capfd.readouterr().out == ""
    pair = load_pair(str(target), str(draft))
    assert pair.draft_off is None
    assert pair.target.weight_bytes < 0.3 * load_pair().target.weight_bytes
    assert sorted(it.name for it in tmp_path.iterdir()) == ["draft", "target"]


def test_conversion_keeps_full_precision(tmp_path):
    made = convert(DRAFT, str(tmp_path / "made"), dtype="float16")
    assert "quantization" not in json.loads((made / "config.json").read_text())
    pair = load_pair(TARGET, str(made))
    assert pair.draft is not None
    assert pair.draft.weight_bytes == load_pair(draft="built-in").draft.weight_bytes


def test_what_is_quantized_is_not_quantized_again(tmp_path):
    made = convert(DRAFT, str(tmp_path / "a"), bits=4, group=32)
    with pytest.raises(BadOptionError, match="is already quantized to 4 bits"):
        convert(str(made), str(tmp_path / "b"), bits=4)


def test_nothing_is_written_over(tmp_path):
    for place, says in ((tmp_path, "exists already"), (tmp_path / "no" / "x", "is not a folder")):
        with pytest.raises(BadOptionError, match=says):
            convert(DRAFT, str(place), bits=4)
    with pytest.raises(ModelNotFoundError):
        convert(str(tmp_path / "absent"), str(tmp_path / "x"), bits=4)


def test_the_disk_is_checked_first(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(BadOptionError, match=r"needs about .* but only"):
        convert(DRAFT, str(tmp_path / "a"), bits=4)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    def failing(source: str, destination: str, **_: object) -> None:
        Path(destination).mkdir()
        raise ValueError("no such\nlayer")

    monkeypatch.setattr(conversion._conversion, "convert", failing)
    with pytest.raises(ModelBrokenError, match=r"cannot be converted by mlx-lm \(no such layer\)"):
        convert(DRAFT, str(tmp_path / "a"), bits=4)
    assert list(tmp_path.iterdir()) == []


def test_code_is_not_run_unasked(tmp_path, copy):
    folder = copy()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))
    with pytest.raises(ModelBrokenError, match="runs its own code"):
        convert(str(folder), str(tmp_path / "made"))
