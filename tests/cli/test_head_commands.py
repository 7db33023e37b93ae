"""``check`` and ``models plan`` with a head."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from heads.blockfiles import OWN, PACKAGINGS, tensors_of
from heads.headfiles import mtp_tensors, written

from macspec import load_pair
from macspec.assets import pocket as built_in


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The built-in target with a random head in its folder."""
    folder = Path(shutil.copytree(built_in()[0], tmp_path_factory.mktemp("model") / "target"))
    tensors = mtp_tensors(load_pair(context=64).target.module, 320)
    mx.save_safetensors(str(folder / "mtp.safetensors"), tensors)
    return str(folder)


def test_a_head_is_proved_on_the_pair(
    macspec: Callable[..., Any], whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.learned.REPEATS", 1)
    monkeypatch.setattr("macspec.control.CostCurve.missing", lambda *_: [])
    monkeypatch.setattr("macspec.heads.agreement.LEAST", 9)
    monkeypatch.setattr("macspec.drafters.head.LEAST", 9)
    outcome = macspec("check", "--target", whole, "--prompts", "1", "--max-tokens", "4")
    report = outcome.out.decode()
    assert outcome.status == 0
    assert f"\n  head        of {whole}: " in report
    assert sum(" mtp " in line and "equal" in line for line in report.splitlines()) == 2
    (line,) = (it for it in report.splitlines() if it.startswith("  MTP head"))
    assert "chooses the target's token in 0% of " in line
    assert "; a token drafted costs 0." in line
    assert "  notice      the head drafts badly: it agrees" in report
    assert "passed: 4 of 4" in report


def test_a_block_drafter_is_proved_on_the_pair(
    macspec: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.learned.REPEATS", 1)
    monkeypatch.setattr("macspec.control.CostCurve.missing", lambda *_: [])
    monkeypatch.setattr("macspec.heads.blockcheck.ANCHORS", 4)
    form = PACKAGINGS["z-lab"]
    config = {**form.config, "dflash_config": {**OWN, "target_layer_ids": [1, 4, 8]}}
    folder = str(written(tmp_path, tensors_of(form, width=320), config))
    outcome = macspec("check", "--draft", folder, "--prompts", "1", "--max-tokens", "4")
    report = outcome.out.decode()
    assert outcome.status == 0
    (line,) = (it for it in report.splitlines() if it.startswith("  DFlash head"))
    assert "chooses the target's token in 0% of 4 places; a block costs " in line
    assert "  notice      the head counts the target's layers from 1" in report
    assert "passed: 4 of 4" in report


def test_a_plan_counts_the_head(macspec: Callable[..., Any], whole: str) -> None:
    plans = [
        macspec("models", "plan", target, "--context", "1000").out.decode().splitlines()
        for target in (whole, str(built_in()[0]))
    ]
    weights, caches = (it.partition("  ")[2].strip() for it in plans[0][:2])
    assert weights.startswith("target 0.019 GB, head 0.005 GB")
    assert ", head 0.0" in caches
    assert "head" not in "".join(plans[1])
