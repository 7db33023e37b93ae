"""The bench with a head: what is swept, and what a report says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from headfiles import head_of

from macspec.bench.arms import ArmName
from macspec.bench.document import models
from macspec.bench.sweeps import SWEEPS
from macspec.kernels import Kernels
from macspec.models import Pair


def test_a_head_is_swept_and_named(pocket: Pair, tmp_path: Path) -> None:
    head = replace(head_of(pocket, "llama", "eagle", tmp_path / "head"), name=str(tmp_path))
    pair = replace(pocket, draft=None, head=head)
    assert "eagle@4" in SWEEPS["depth"](pair).arms
    assert "eagle" in SWEEPS["drafters"](pair).arms
    assert {"draft", "eagle"} <= set(SWEEPS["drafters"](replace(pocket, head=head)).arms)
    assert ArmName.parse("eagle@4").method == "eagle"
    record = models(pair, Kernels(), None)
    assert record["head"]["kind"] == "eagle"
    assert record["head"]["name"] == tmp_path.name
    assert str(tmp_path) not in json.dumps(record["head"])
    assert models(pocket, Kernels(), None)["head"] is None
