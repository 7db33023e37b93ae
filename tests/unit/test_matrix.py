"""The table of architectures says what the engine does, and no token differs anywhere."""

from __future__ import annotations

import re
from pathlib import Path

import matrix
import mlx_lm.models
import pytest

from macspec.models import Pair

USUAL = ("llama", "gemma3_text", "qwen3_5")
NAMES = [
    pytest.param(name, marks=() if name in USUAL else pytest.mark.slow)
    for name in matrix.families()
]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_a_family_does(pocket: Pair, name: str) -> None:
    assert matrix.row(name, pocket) == matrix.read()[name], "run python tests/unit/matrix.py"


def test_every_architecture_of_mlx_lm_is_in_the_table() -> None:
    files = Path(mlx_lm.models.__path__[0]).glob("*.py")
    wanted = re.compile(r"^class Model\(|^from .* import .*\bModel\b", re.MULTILINE)
    known = {file.stem for file in files if wanted.search(file.read_text(encoding="utf-8"))}
    assert set(matrix.families()) == set(matrix.read()) == known


def test_the_table_can_be_read_back() -> None:
    rows = matrix.read()
    _, _, below = matrix.README.read_text(encoding="utf-8").partition(matrix.MARK)
    assert matrix.table(rows.values()) == below
    assert all(len(row.why) > 0 for row in rows.values() if "no" in (row.trees, row.kv_bits))
