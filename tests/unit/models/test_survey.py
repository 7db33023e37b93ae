"""The models on this machine, as a program tells about them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from modelfolders import POCKET

from macspec.models.findings import EVENTS, Fit, Found, Listed, Machine, Opened
from macspec.models.survey import survey

TARGET, DRAFT = str(POCKET / "target"), str(POCKET / "draft")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_lies_where_comes_before_anything_is_opened():
    events = list(survey([TARGET, DRAFT, "/nowhere"]))
    kinds = [type(event) for event in events]
    assert kinds == [Found, Found, Found, Listed, Machine, Opened, Opened, Fit]
    assert [it.missing for it in events[:3]] == [None, None, "there is no such folder any more"]
    opened, fit = events[5], events[7]
    assert (opened.name, opened.context, opened.positions, opened.fits) == (
        TARGET,
        2048,
        2048,
        True,
    )
    assert fit == Fit(TARGET, DRAFT, None, fit.memory, 2048, True)
    assert opened.memory < fit.memory


def test_a_model_that_cannot_be_opened_is_in_no_pair(tmp_path):
    broken = Path(shutil.copytree(DRAFT, tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"")
    *_, first, second = survey([TARGET, str(broken)])
    assert (first.name, second.name) == (TARGET, str(broken))
    assert second.context is None
    assert "is cut off" in second.reason


def test_a_folder_with_other_files_has_another_stamp(tmp_path):
    folder = Path(shutil.copytree(DRAFT, tmp_path / "model"))
    before = next(survey([str(folder)]))
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    assert next(survey([str(folder)])).stamp != before.stamp


def test_as_a_program_without_mlx_until_all_is_listed(tmp_path):
    program = (sys.executable, "-P", "-m", "macspec.models.survey", TARGET, DRAFT)
    environment = {"HF_HUB_CACHE": str(tmp_path), "PATH": "/bin"}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [record.pop("event") for record in records]
    assert kinds == ["found", "found", "listed", "machine", "opened", "opened", "fit"]
    assert EVENTS["fit"](**records[-1]).draft == DRAFT
    quick = "import macspec.models.survey, sys; print('mlx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", quick], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
