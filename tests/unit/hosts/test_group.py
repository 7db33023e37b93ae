"""Two and three ranks on this machine, over MLX's ring."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCENARIO = Path(__file__).with_name("scenario.py")

TOKENS = 8
"""Of a reply: every sum over the ranks costs processor time while they wait for each other."""


def scenario(folder: Path, count: int, name: str, ways: int, changes: Any) -> Any:
    program = [sys.executable, str(SCENARIO), str(folder), str(count), name]
    done = subprocess.run(
        [*program, json.dumps(changes), str(TOKENS), str(ways)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout.splitlines()[-1])


CASES = [
    ("qwen3", 2, 1, {}),
    *(
        pytest.param(*it, marks=pytest.mark.slow)
        for it in (
            ("llama", 2, 2, {}),
            ("qwen3_5", 2, 1, {"tie_word_embeddings": False}),
            ("llama", 3, 1, {}),
            ("qwen3", 3, 1, {}),
            ("qwen3_5", 3, 1, {}),
        )
    ),
]


@pytest.mark.parametrize(("name", "count", "ways", "changes"), CASES)
def test_replies_are_those_of_one_process(
    tmp_path: Path, name: str, count: int, ways: int, changes: dict[str, Any]
) -> None:
    """In float32, where sums of parts differ from whole ones in the last bits only, and no two
    scores of these texts are that close."""
    report = scenario(tmp_path, count, name, ways, changes)
    assert report["how"] == "tensor"
    assert report["kind"] == "mtp"
    assert set(report["differences"]) == {None}
    assert report["drafted"] > TOKENS
    one, five = report["messages"]
    assert one == five
    assert one[1] == 1
