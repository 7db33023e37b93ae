"""``macspec models`` against a hub on the loopback interface."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakehub import Hub, serving

from macspec.models import download
from macspec.worker.registry import Registry

POCKET = Path(str(files("macspec.assets"))) / "pocket"
PAIR = """
[[pairs]]
name = "tiny"
target = "owner/target"
draft = "owner/draft"
memory_8k = 0.1
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the built-in pair, which the settings know as ``tiny``."""
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text(PAIR)
    monkeypatch.setenv("MACSPEC_HOME", str(home))
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 8)
    served = Hub()
    served.add("owner/target", POCKET / "target")
    served.add("owner/draft", POCKET / "draft")
    with serving(served, tmp_path / "cache", monkeypatch):
        yield served


def records(outcome: Any) -> list[dict[str, Any]]:
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_pair_is_fetched_listed_planned_and_removed(
    macspec: Callable[..., Any], hub: Hub, tmp_path: Path
) -> None:
    before = macspec("models").out.decode()
    assert "nothing yet" in before
    assert "tiny" in before.partition("pairs to fetch")[2]

    pulled = macspec("models", "pull", "tiny")
    assert pulled.status == 0, pulled.err
    said = pulled.err.index("owner/draft: licence: see huggingface.co/owner/draft")
    assert said < pulled.err.index("owner/target and owner/draft: 22.")
    folders = [Path(line) for line in pulled.out.decode().splitlines()]
    assert [(folder / "config.json").exists() for folder in folders] == [True, True]
    assert "macspec: owner/target and owner/draft: 22." in pulled.err
    assert "100%" in pulled.err

    listed = macspec("models").out.decode()
    assert "owner/target + owner/draft: fits" in listed
    drafters = listed.partition("what drafts for which target")[2].partition("pairs to fetch")[0]
    assert re.search("owner/target +owner/draft, which is here", drafters)
    assert re.search("owner/draft +no draft model known; repeated text is drafted", drafters)
    assert "\n  tiny" in listed
    assert "here" in next(line for line in listed.splitlines() if line.startswith("  tiny"))
    names = {name for record in records(macspec("models", "--json")) for name in record}
    assert names == {"machine", "model", "match", "pair"}

    planned = macspec("models", "plan", "tiny", "--context", "512")
    assert planned.status == 0, planned.err
    assert "for 512 positions" in planned.out.decode()
    assert "fits; up to 2048 positions do" in planned.out.decode()

    refused = macspec("models", "rm", "tiny")
    assert refused.status == 2
    assert "would delete owner/target" in refused.error
    assert macspec("models", "rm", "tiny", "--yes").status == 0
    assert "nothing yet" in macspec("models").out.decode()
    assert "not in the hub's cache" in macspec("models", "rm", "tiny", "--yes").error


def test_the_events_of_a_broken_download(macspec: Callable[..., Any], hub: Hub) -> None:
    hub.breaks = [100_000]
    events = records(macspec("models", "pull", "owner/draft", "--json"))
    kinds = [event["event"] for event in events]
    licence, *events = events
    assert licence["licence"] == "see huggingface.co/owner/draft"
    assert kinds[:2] == ["licence", "listed"]
    assert kinds[-1] == "pulled"
    assert {"retrying", "progress"} <= set(kinds)
    assert events[-1]["total"] == events[0]["total"]


def test_a_target_without_its_draft_says_which_is_missing(
    macspec: Callable[..., Any], hub: Hub, tmp_path: Path
) -> None:
    hub.add("other/target-8bit", POCKET / "target")
    assert macspec("models", "pull", "other/target-8bit").status == 0
    listed = macspec("models").out.decode()
    assert "owner/draft is missing: macspec models pull owner/draft" in listed
    (model,) = (it["model"] for it in records(macspec("models", "--json")) if "model" in it)
    assert model["drafter"].startswith("owner/draft is missing")


def test_a_head_is_fetched_out_of_its_checkpoint(
    macspec: Callable[..., Any], hub: Hub, tmp_path: Path
) -> None:
    names = ("fc", "pre_fc_norm_hidden", "layers.0.mlp.up_proj")
    tensors = {f"mtp.{name}.weight": mx.zeros((64, 64)) for name in names}
    tensors["model.layers.0.mlp.up_proj.weight"] = mx.zeros((64, 64))
    mx.save_safetensors(str(tmp_path / "raw.safetensors"), tensors)
    weights = (tmp_path / "raw.safetensors").read_bytes()
    hub.models["owner/raw"] = {"model.safetensors": weights, "config.json": b"{}"}
    hub.tags = ["license:cc-by-nc-4.0"]
    refused = macspec("models", "pull", "owner/raw", "--head")
    assert "would download owner/raw, non-commercial: add --yes" in refused.error
    pulled = macspec("models", "pull", "owner/raw", "--head", "--yes")
    folder = tmp_path / "home" / "data" / "heads" / "owner--raw-MTP"
    assert pulled.out.decode() == f"{folder}\n"
    assert "owner/raw: licence: cc-by-nc-4.0" in pulled.err
    assert f"draft with it: --draft {folder}" in pulled.err
    assert re.search(f"{folder} .* MTP head", macspec("models").out.decode())
    assert "freed" in macspec("models", "rm", str(folder), "--yes").err
    assert not folder.exists()


def test_a_non_commercial_licence_has_to_be_accepted(
    macspec: Callable[..., Any], hub: Hub, tmp_path: Path
) -> None:
    limited = PAIR + 'licences = ["Some License (non-commercial)", "MIT"]\n'
    (tmp_path / "home" / "config" / "config.toml").write_text(limited)
    refused = macspec("models", "pull", "tiny")
    assert refused.status == 2
    assert "owner/target: licence: Some License (non-commercial)" in refused.err
    assert "this would download owner/target, non-commercial: add --yes" in refused.error
    assert "nothing yet" in macspec("models").out.decode()
    assert macspec("models", "pull", "owner/draft").status == 0
    assert macspec("models", "pull", "tiny", "--yes").status == 0


def test_errors_are_one_line(macspec: Callable[..., Any], hub: Hub) -> None:
    hub.refuses["owner/gated"] = (403, "GatedRepo")
    for arguments, says in (
        (("pull", "owner/gated"), "accept its licence"),
        (("pull", "tinny"), "did you mean tiny?"),
        (("rm", "owner/none", "--yes"), "not in the hub's cache"),
        (("plan", "owner/none"), "macspec models pull owner/none"),
        (("plan", "tinny"), "did you mean tiny?"),
        (("plan", "built-in", "--context", "4096"), "made for 2048 positions"),
        (("quantize", str(POCKET / "draft"), "/"), "exists already"),
    ):
        outcome = macspec("models", *arguments)
        assert outcome.status == 2
        assert says in outcome.error


def test_a_draft_that_another_pair_needs_is_kept(
    macspec: Callable[..., Any], hub: Hub, tmp_path: Path
) -> None:
    hub.add("owner/other", POCKET / "target")
    other = PAIR.replace("tiny", "second").replace("owner/target", "owner/other")
    (tmp_path / "home" / "config" / "config.toml").write_text(PAIR + other)
    assert macspec("models", "pull", "tiny", "second").status == 0
    assert macspec("models", "rm", "tiny", "--yes").status == 0
    left = [it["model"]["name"] for it in records(macspec("models", "--json")) if "model" in it]
    assert left == ["owner/draft", "owner/other"]


def test_a_plan_of_what_is_not_here_is_the_catalogues(
    macspec: Callable[..., Any], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.models.memory.device_limit", lambda: 8 * 2**30)
    fitting = macspec("models", "plan", "qwen3-8b")
    assert fitting.status == 0
    assert "about 6.7 GB at 8192 positions, from the catalogue" in fitting.out.decode()
    assert macspec("models", "plan", "qwen3-14b").status == 1


def test_a_plan_that_does_not_fit(
    macspec: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.models.memory.device_limit", lambda: 35 * 2**20)
    outcome = macspec("models", "plan", "built-in", "--context", "2048")
    assert outcome.status == 1
    report = outcome.out.decode()
    assert "does not fit, by 0.0" in report
    assert "positions do" in report


def test_a_plan_leaves_other_engines_what_they_hold(
    macspec: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.models.memory.device_limit", lambda: 2**30)
    assert macspec("models", "plan", "built-in").status == 0
    other = Registry()
    assert other.enter("some/model", 2**30 - 2**20, 2**30) == []
    beside = macspec("models", "plan", "built-in")
    assert beside.status == 1
    assert f"process {os.getpid()}, for some/model" in beside.out.decode()
    other.leave()
    assert macspec("models", "plan", "built-in").status == 0


def test_models_are_made_smaller(macspec: Callable[..., Any], tmp_path: Path) -> None:
    made = tmp_path / "small"
    outcome = macspec("models", "quantize", str(POCKET / "draft"), str(made), "--group-size", "32")
    assert outcome.out.decode() == f"{made}\n"
    assert "4 bits" in macspec("models", "quantize", str(made), str(tmp_path / "b")).error
    draft = tmp_path / "draft"
    arguments = (str(POCKET / "draft"), str(draft), "--for", "draft", "--group-size", "32")
    assert macspec("models", "quantize", *arguments).status == 0
    assert json.loads((draft / "config.json").read_text())["quantization"]["bits"] == 8
    full = tmp_path / "full"
    assert macspec("models", "convert", str(POCKET / "draft"), str(full)).status == 0
    assert (full / "config.json").exists()
