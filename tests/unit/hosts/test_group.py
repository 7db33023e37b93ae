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


def scenario(folder: Path, count: int, name: str, tokens: int, changes: Any) -> Any:
    program = [sys.executable, str(SCENARIO), str(folder), str(count), name]
    ways = 1 if tokens < 16 else 2
    done = subprocess.run(
        [*program, json.dumps(changes), str(tokens), str(ways)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout.splitlines()[-1])


CASES = [
    ("qwen3", 2, 8, {}),
    *(
        pytest.param(name, count, tokens, changes, marks=pytest.mark.slow)
        for name, count, tokens, changes in (
            ("llama", 2, 32, {}),
            ("qwen3_5", 2, 32, {"tie_word_embeddings": False}),
            ("llama", 3, 16, {}),
            ("qwen3", 3, 16, {}),
            ("qwen3_5", 3, 16, {}),
            ("qwen2", 2, 16, FIVE),
        )
    ),
]


@pytest.mark.parametrize(("name", "count", "tokens", "changes"), CASES)
def test_replies_are_those_of_one_process(
    tmp_path: Path, name: str, count: int, tokens: int, changes: dict[str, Any]
) -> None:
    """In float32, where sums of parts differ from whole ones in the last bits only, and no two
    scores of these texts are that close."""
    report = scenario(tmp_path, count, name, tokens, changes)
    assert report["how"] == ("pipeline" if changes is FIVE else "tensor")
    assert report["kind"] == "mtp"
    assert set(report["differences"]) == {None}
    assert report["drafted"] > tokens
    one, five = report["messages"]
    assert one == five
    assert one[1] == 1
