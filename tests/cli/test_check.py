"""``macspec check``: it passes where replies are equal and fails where they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import macspec.verification.match as match
from macspec.cli.check import CheckedReply
from macspec.divergence import Divergence, explain, first_difference
from macspec.verification.rule import Verdict


def test_the_built_in_pair_passes(macspec: Callable[..., Any]) -> None:
    outcome = macspec("check", "--prompts", "2", "--max-tokens", "12")
    report = outcome.out.decode()
    assert outcome.status == 0
    for label in ("chip", "memory", "MLX", "backend", "mx.compile", "target", "draft", "vocab"):
        assert f"\n  {label}" in report
    assert report.splitlines()[-1].startswith("passed: ")
    lines = [line for line in report.splitlines() if line.startswith("  prompt ")]
    assert len(lines) == 2 * 4
    assert any("eagle" in line and "acceptance" in line for line in lines)


def test_a_rule_that_keeps_a_wrong_token_fails(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_generous(drawn: mx.array, drafted: mx.array) -> Verdict:
        everything = mx.array(drafted.shape[0], mx.int32)
        return Verdict(everything, mx.take(drawn, everything))

    monkeypatch.setattr(match, "first_mismatch", too_generous)
    outcome = macspec("check", "--prompts", "2", "--max-tokens", "16")
    report = outcome.out.decode()
    assert outcome.status == 1
    assert "NOT EQUAL at token" in report
    assert report.splitlines()[-1].startswith("FAILED: ")


def test_a_model_without_a_chat_template_is_tried_with_raw_text(
    macspec: Callable[..., Any], shared: Path
) -> None:
    folder = shared / "data" / "models" / "stories260K"
    outcome = macspec("check", "--target", str(folder), "--prompts", "2", "--max-tokens", "16")
    assert outcome.status == 0
    assert "passed: 4 of 4" in outcome.out.decode()


@pytest.mark.parametrize(
    ("gap", "status", "words"),
    [(0.01, 0, "near tie at token 5"), (3.0, 1, "NOT EQUAL at token 5"), (None, 1, "ends at")],
)
def test_a_fork_is_judged_by_its_gap(
    macspec: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    gap: float | None,
    status: int,
    words: str,
) -> None:
    reply = CheckedReply(1, "draft", "greedy", 9, 0.5, Divergence(5, 10, 11, gap, 0.25))
    monkeypatch.setattr("macspec.cli.check.self_check", lambda *_, **__: iter([reply]))
    monkeypatch.setattr("macspec.cli.check._head", lambda session: [])
    outcome = macspec("check")
    assert outcome.status == status
    assert words in outcome.out.decode()


@pytest.mark.parametrize(
    ("one", "other", "position"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 9, 3), 1),
        ((1, 2), (1, 2, 3), 2),
        ((), (4,), 0),
        ((), (), None),
    ],
)
def test_the_first_difference(
    one: tuple[int, ...], other: tuple[int, ...], position: int | None
) -> None:
    assert first_difference(one, other) == first_difference(other, one) == position


def test_the_gap_is_to_the_worse_of_the_two_tokens() -> None:
    fork = explain(1, (7, 0), (7, 2), [1.0, 4.0, 3.5], 0.25)
    assert (fork.plain, fork.speculative, fork.margin) == (0, 2, 3.0)
    assert not fork.near_tie
    assert explain(1, (7, 1), (7, 2), [1.0, 4.0, 3.875], 0.25).near_tie
    assert not explain(1, (7,), (7, 2), [1.0, 4.0, 4.0], 0.25).near_tie
