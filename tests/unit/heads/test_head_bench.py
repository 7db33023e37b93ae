"""The bench with a head: what is swept, and what a report says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from blockfiles import block_of
from headfiles import head_of

from macspec.bench.arms import ArmName
from macspec.bench.document import models
from macspec.bench.sweeps import SWEEPS
from macspec.kernels import Kernels
from macspec.models import Pair


@pytest.mark.parametrize("kind", ["eagle", "dflash", "dspark"])
def test_a_head_is_swept_and_named(pocket: Pair, tmp_path: Path, kind: str) -> None:
    if kind == "eagle":
        head = head_of(pocket, "llama", "eagle", tmp_path / "head")
    else:
        name = {"dflash": "dflash2", "dspark": "deepspec"}[kind]
        head = block_of(pocket, "llama", name, tmp_path / "head")
    head = replace(head, name=str(tmp_path))
    pair = replace(pocket, draft=None, head=head)
    assert {f"{kind}@{depth}" for depth in (4, 7, 16)} <= set(SWEEPS["depth"](pair).arms)
    assert kind in SWEEPS["drafters"](pair).arms
    assert {"draft", kind} <= set(SWEEPS["drafters"](replace(pocket, head=head)).arms)
    arm = ArmName.parse(f"{kind}@7")
    assert (arm.method, arm.depth) == (kind, 7)
    record = models(pair, Kernels(), None)
    assert record["head"]["kind"] == kind
    assert record["head"]["name"] == tmp_path.name
    assert str(tmp_path) not in json.dumps(record["head"])
    assert models(pocket, Kernels(), None)["head"] is None
