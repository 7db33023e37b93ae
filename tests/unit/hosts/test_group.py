"""Two and three ranks on this machine, over MLX's ring."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from groups import FIVE

SCENARIO = Path(__file__).with_name("scenario.py")

TOKENS = {2: 8, 3: 3}
"""Of a reply, by ranks: every sum over them costs processor time while they wait for each other."""

EDITS = {"llama": 8}
"""Of the text, with a reply after each, by architecture."""


def scenario(folder: Path, count: int, name: str, ways: int, changes: Any) -> Any:
    program = [sys.executable, str(SCENARIO), str(folder), str(count), name]
    done = subprocess.run(
        [*program, json.dumps(changes), str(TOKENS[count]), str(ways), str(EDITS.get(name, 0))],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout.splitlines()[-1])


SUM = "all_sum"
SUMS = [SUM] * 5
"""What a pass over two shared layers sends: tokens, and attention and MLP of each."""
DEALT = [SUM, "recv_like", "all_gather"]
"""What rank 0's part of a pipeline sends and receives."""

CASES = [
    ("qwen3", 2, 1, {}, SUMS),
    *(
        pytest.param(*it, marks=pytest.mark.slow)
        for it in (
            ("llama", 2, 2, {}, SUMS),
            ("qwen3_5", 3, 1, {"num_hidden_layers": 2, "full_attention_interval": 2}, SUMS),
            ("qwen2", 2, 2, FIVE, DEALT),
            ("qwen3_next", 2, 1, {"num_hidden_layers": 4}, DEALT),
        )
    ),
]


@pytest.mark.parametrize(("name", "count", "ways", "changes", "sent"), CASES)
def test_replies_are_those_of_one_process(
    tmp_path: Path, name: str, count: int, ways: int, changes: dict[str, Any], sent: list[str]
) -> None:
    """In float32, where sums of parts differ from whole ones in the last bits only, and no two
    scores of these texts are that close."""
    report = scenario(tmp_path, count, name, ways, changes)
    assert report["how"] == ("pipeline" if sent is DEALT else "tensor")
    assert report["kind"] == "mtp"
    assert set(report["differences"]) == {None}
    assert report["drafted"] >= TOKENS[count] / 2
    assert report["messages"] == [[sent, 1]] * 2  # with one row, and with five
