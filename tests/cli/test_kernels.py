"""``--kernels``: the table of ``check``, and the switch of ``run``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

no_metal = pytest.mark.skipif(mx.metal.is_available(), reason="needs a machine that is no Mac")


@no_metal
def test_without_metal_the_table_has_dashes_and_the_reason(macspec: Callable[..., Any]) -> None:
    outcome = macspec("check", "--kernels")
    assert outcome.status == 0
    lines = outcome.out.decode().splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("kernel "))
    assert lines[head].split() == ["kernel", "variant", "self-check", "speed"]
    rows = [line for line in lines[head + 1 :] if line.split()[-2:] == ["-", "-"]]
    assert {row.split()[0] for row in rows} == {"verify_attention", "accept", "draft_sample"}
    assert "MLX's own: matrices that are not quantized" in lines
    assert lines[-1].startswith("-: Metal is not available")
    assert not any(line.startswith("self-check") for line in lines)


@no_metal
def test_the_report_is_one_document(macspec: Callable[..., Any]) -> None:
    outcome = macspec("check", "--kernels", "--json")
    assert outcome.status == 0
    found = json.loads(outcome.out)
    assert {"chip", "macos", "mlx", "macspec", "kernels"} <= set(found["machine"])
    assert {it["verdict"] for it in found["variants"]} == {"unchecked"}
    assert "matrices that are not quantized" in found["left_to_mlx"]


def test_json_without_kernels_is_refused(macspec: Callable[..., Any]) -> None:
    outcome = macspec("check", "--json")
    assert outcome.status == 2
    assert "--json is a form of --kernels" in outcome.err


@no_metal
def test_check_says_whose_kernels_compute(macspec: Callable[..., Any]) -> None:
    outcome = macspec("check", "--prompts", "1", "--max-tokens", "4")
    line = "\n  kernels     MLX (no Metal)\n"
    assert line in outcome.out.decode()


def test_every_mode_says_the_same(macspec: Callable[..., Any]) -> None:
    options = ("--temperature", "0", "--max-tokens", "8", "--no-learn")
    plain = macspec("run", "Hello", *options)
    for mode in ("auto", "off", "strict"):
        outcome = macspec("run", "Hello", "--kernels", mode, *options)
        assert outcome.status == plain.status == 0
        assert outcome.out == plain.out, mode


def test_an_unknown_mode_is_refused(macspec: Callable[..., Any]) -> None:
    outcome = macspec("run", "Hello", "--kernels", "fast")
    assert outcome.status == 2
    assert "--kernels" in outcome.err
