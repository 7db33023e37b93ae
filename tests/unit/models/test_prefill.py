"""Prefill passes double while they are quick, and never outgrow memory."""

from __future__ import annotations

import pytest

from macspec.models.prefill import PREFILL_CHUNK, PREFILL_SECONDS, PrefillChunk


def run(most: int, tokens_per_second: float, passes: int = 8) -> list[int]:
    chunk, seen = PrefillChunk(most), []
    for _ in range(passes):
        seen.append(chunk.rows)
        chunk.took(chunk.rows, chunk.rows / tokens_per_second)
    return seen


@pytest.mark.parametrize(
    ("most", "speed", "expected"),
    [
        (2048, 5000, [512, 1024, 2048, 2048]),
        (1024, 5000, [512, 1024, 1024, 1024]),
        (512, 5000, [512] * 4),
        (2048, 600, [512, 1024, 1024, 1024]),
        (2048, 60, [512] * 4),
        (32, 5000, [32] * 4),
    ],
)
def test_growth(most: int, speed: float, expected: list[int]) -> None:
    assert run(most, speed, 4) == expected


def test_a_machine_that_gets_slower_gets_shorter_passes() -> None:
    chunk = PrefillChunk(2048)
    for seconds, rows in ((0.1, 1024), (0.2, 2048), (2.1, 1024), (9.0, PREFILL_CHUNK)):
        chunk.took(chunk.rows, seconds)
        assert chunk.rows == rows
    chunk.took(3, PREFILL_SECONDS)  # the rest of a prompt
    assert chunk.rows == PREFILL_CHUNK


def test_less_memory_counts_at_once() -> None:
    chunk = PrefillChunk(2048)
    chunk.took(512, 0.1)
    chunk.most = 512
    assert chunk.rows == 512
