"""The model scan: what is found, what is opened, and which draft fits which target."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from modelfolders import POCKET, edited, shared_model
from tinymodels import saved

from macspec.cli import modellist
from macspec.models.scan import (
    EVENTS,
    FoundModel,
    MachineMemory,
    OpenedModel,
    PairFit,
    ScanListed,
    scan,
)

TARGET, DRAFT = str(POCKET / "target"), str(POCKET / "draft")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_lies_where_comes_before_anything_is_opened():
    events = list(scan([TARGET, DRAFT, "/nowhere"]))
    kinds = [type(event) for event in events]
    assert kinds == [
        FoundModel,
        FoundModel,
        FoundModel,
        ScanListed,
        MachineMemory,
        OpenedModel,
        OpenedModel,
        PairFit,
    ]
    assert [it.missing for it in events[:3]] == [None, None, "the folder no longer exists"]
    opened, fit = events[5], events[7]
    assert (opened.name, opened.context, opened.positions, opened.fits) == (
        TARGET,
        2048,
        2048,
        True,
    )
    assert fit == PairFit(TARGET, DRAFT, None, fit.memory, 2048, True)
    assert opened.memory < fit.memory


def test_a_model_that_cannot_be_opened_is_in_no_pair(tmp_path):
    broken = Path(shutil.copytree(DRAFT, tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"")
    *_, first, second = scan([TARGET, str(broken)])
    assert (first.name, second.name) == (TARGET, str(broken))
    assert second.context is None
    assert "is truncated" in second.reason


def test_a_folder_with_other_files_has_another_stamp(tmp_path):
    folder = Path(shutil.copytree(DRAFT, tmp_path / "model"))
    before = next(scan([str(folder)]))
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    assert next(scan([str(folder)])).stamp != before.stamp


def fits(*folders: Path) -> dict[tuple[str, str], str | None]:
    """The reasons of a scan by target and draft, each by the name of its folder."""
    events = scan([str(folder) for folder in folders])
    return {
        (Path(it.target).name, Path(it.draft).name): it.reason
        for it in events
        if isinstance(it, PairFit)
    }


def test_the_built_in_pair_fits_one_way_and_another_vocabulary_does_not(copy):
    other = copy("draft", "other")
    with edited(other / "tokenizer.json") as tokenizer:
        vocabulary = tokenizer["model"]["vocab"]
        text = next(text for text, index in vocabulary.items() if index == 1999)
        tokenizer["model"]["merges"] = []
        vocabulary["else"] = vocabulary.pop(text)
    found = fits(POCKET / "draft", other, POCKET / "target")
    assert set(found) == {("target", "draft"), ("target", "other")}
    assert found["target", "draft"] is None
    assert (found["target", "other"] or "").startswith("its vocabulary differs")


def test_a_hybrid_says_how_it_goes_back(tmp_path, monkeypatch, capsys):
    folder = str(saved("qwen3_5", tmp_path / "hybrid"))
    opened = [it for it in scan([folder, DRAFT]) if isinstance(it, OpenedModel)]
    assert [(it.reason, it.rollback) for it in opened] == [(None, "recorded"), (None, None)]
    monkeypatch.setattr(modellist, "scan", lambda: iter([*scan([folder, DRAFT])]))
    modellist.list_models([], as_json=False)
    here = capsys.readouterr().out.partition("matching drafts")[0]
    assert here.count("rollback") == here.count("rollback: recorded\n") == 1
    options = Namespace(target=folder, draft=None, context=None, kv_bits=None, hosts=None)
    assert modellist.show_plan(options, None) == 0
    plan = capsys.readouterr().out
    assert "rollback     recorded\n" in plan
    assert "checkpoints  target 0.000 GB, of the caches\n" in plan


def test_models_of_others():
    names = ("chat-8.7M", "chat-draft-0.6M", "stories260K")
    found = fits(*(Path(shared_model(name)) for name in names))
    assert found[names[0], names[1]] is None
    assert found[names[0], names[2]] is not None
    assert len(found) == 3


def test_as_a_program_without_mlx_until_all_is_listed(tmp_path):
    program = (sys.executable, "-P", "-m", "macspec.models.scan", TARGET, DRAFT)
    environment = {"HF_HUB_CACHE": str(tmp_path), "PATH": "/bin"}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [record.pop("event") for record in records]
    assert kinds == ["found", "found", "listed", "machine", "opened", "opened", "fit"]
    assert EVENTS["fit"](**records[-1]).draft == DRAFT
    quick = "import macspec.models.scan, sys; print('mlx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", quick], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
