"""What the scan and the list of models say of heads."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from headfiles import EAGLE, eagle_tensors, mtp_tensors, written

from macspec.assets import pocket as built_in
from macspec.cli import modellist
from macspec.models import Pair
from macspec.models.catalog import Entry
from macspec.models.pair import built_in_notice
from macspec.models.scan import OpenedModel, PairFit, ScanEvent, scan

TARGET, DRAFT, _ = map(str, built_in())


@pytest.fixture
def folders(pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A head for the built-in target, one for another, one of another width, and a target that
    brings one along."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "home"))
    tensors = mtp_tensors(pocket.target.module, 320)
    verifier = {"speculators_config": {"verifier": {"name_or_path": "owner/Another-1B"}}}
    own = Path(shutil.copytree(TARGET, tmp_path / "whole"))
    mx.save_safetensors(str(own / "mtp.safetensors"), tensors)
    return {
        "own": str(written(tmp_path / "home" / "data" / "heads" / "own", tensors, {})),
        "other": str(written(tmp_path / "other", tensors, verifier)),
        "narrow": str(written(tmp_path / "narrow", eagle_tensors(), EAGLE)),
        "whole": str(own),
    }


def found(folders: dict[str, str], *names: str) -> list[ScanEvent]:
    return list(scan([TARGET, *(folders[it] for it in names)]))


def test_heads_are_told_apart_and_tried_on_every_target(folders: dict[str, str]) -> None:
    events = found(folders, "other", "narrow", "whole")
    opened = {it.name: it for it in events if isinstance(it, OpenedModel)}
    kinds = {name: opened[folder].head for name, folder in folders.items()}
    assert kinds == {"own": "mtp", "other": "mtp", "narrow": "eagle", "whole": None}
    whole, alone = opened[folders["whole"]], opened[TARGET]
    assert (whole.brings, alone.brings) == ("mtp", None)
    assert (whole.memory or 0) > (alone.memory or 0) > 0
    fits = {it.draft: it for it in events if isinstance(it, PairFit) and it.target == TARGET}
    own, other, narrow = (fits[folders[it]] for it in ("own", "other", "narrow"))
    assert (own.reason, own.head, own.made_for, own.fits) == (None, "mtp", None, True)
    assert own.memory == whole.memory
    assert (other.reason, other.made_for) == (None, "owner/Another-1B")
    assert "numbers of 3 layers of 320" in (narrow.reason or "")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["draft"], "{own}, its MTP head, which is here\n"),
        (["whole"], "its own MTP head\n"),
        (["other"], "{own}, its MTP head, which is here\n"),
        ([], "its MTP head owner/Target-MTP is missing: macspec models pull {target} --head\n"),
    ],
)
def test_what_drafts_for_a_target(
    folders: dict[str, str],
    names: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not names:
        shutil.rmtree(folders["own"])
    events = found(folders | {"draft": DRAFT}, *names)
    monkeypatch.setattr(modellist, "scan", lambda: iter(events))
    target = folders["whole"] if names == ["whole"] else TARGET
    entry = Entry("t", "x/target", heads={"medusa": "x/y", "mtp": "owner/Target-MTP"})
    modellist.list_models([entry], as_json=False)
    table = capsys.readouterr().out.partition("what drafts for which target\n")[2]
    (line,) = (it for it in table.splitlines(keepends=True) if it.startswith(f"  {target} "))
    assert line.endswith("  " + says.format(own=folders["own"], target=target))


def test_a_head_made_for_another_target_comes_after_draft_models(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(folders["own"])
    events = found(folders | {"draft": DRAFT}, "draft", "other")
    monkeypatch.setattr(modellist, "scan", lambda: iter(events))
    modellist.list_models([], as_json=False)
    said = capsys.readouterr().out
    assert f"{TARGET} + {folders['other']}: fits, but was made for owner/Another-1B\n" in said
    assert f"{DRAFT}, which is here\n" in said.partition("what drafts for which target\n")[2]


def test_the_notice_names_what_would_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("mid", "owner/mid", "owner/small")
    monkeypatch.setattr("macspec.models.pair.best", lambda *limits: entry)
    assert built_in_notice().endswith("pull mid, then --target owner/mid --draft owner/small")
    entry = replace(entry, heads={"mtp": "owner/mid-MTP"})
    said = built_in_notice()
    assert said.endswith(
        "pull mid, again with --head, then --target owner/mid --draft owner/mid-MTP"
    )
