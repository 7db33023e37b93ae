"""Models whose recurrences have a kernel, on what mlx-lm computes on a Mac."""

from __future__ import annotations

import functools
import importlib
import inspect
import random
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest
from architectures import ARCHITECTURES
from harness import installed
from harness.mlxlm_kernels import delta_rows, ssm_rows
from mlx_lm.models.gated_delta import gated_delta_update
from mlx_lm.models.ssm import ssm_update
from tinymodels import VOCABULARY, built, tiny

from macspec.cache import ModelCache
from macspec.metal import gated_delta, mamba2, recurrences
from macspec.metal.dispatch import MetalKernels
from macspec.metal.outcomes import Outcome
from macspec.metal.variants import RECURRENCE_ROWS, Variant, workload
from macspec.models.rollback import pending_rows_of, recorder_of

FASTER = Outcome(None, seconds=1.0, mlx_seconds=2.0)
DELTA = {
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
}
MODELS: dict[str, dict[str, Any]] = {
    "nemotron_h": {"mamba_num_heads": 8, "ssm_state_size": 32},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_state": 32, "mamba_n_groups": 2},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_state": 32, "mamba_d_ssm": 64},
    "mamba2": {"num_heads": 8, "state_size": 32},
    "plamo2": {"mamba_num_heads": 8, "mamba_d_state": 32},
    "qwen3_5": {**DELTA, "linear_num_key_heads": 4},
    "qwen3_next": {**DELTA, "linear_num_key_heads": 2},
    "olmo_hybrid": {**DELTA, "linear_num_key_heads": 8},
}
"""What a tiny model needs so that the kernel takes it."""
USUAL = ("nemotron_h", "qwen3_5")
NAMES = [pytest.param(it, marks=[pytest.mark.slow] * (it not in USUAL)) for it in MODELS]


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Kernels run in the harness, mlx-lm's for a single row too; their names."""

    def in_harness(stock: Any, by_kernel: Any) -> Any:
        @functools.wraps(stock)
        def update(*args: Any, **named: Any) -> Any:
            bound = inspect.signature(stock).bind(*args, **named)
            bound.apply_defaults()
            found = by_kernel(bound.arguments)
            return stock(**bound.arguments) if found is None else found

        return update

    def ssm(given: Any) -> Any:
        if given["hidden_states"].shape[1] == 1 and given["state"] is not None:
            return ssm_rows(mamba2.Rows.of(given), 1, given["state"])
        return None

    def delta(given: Any) -> Any:
        rows = gated_delta.Rows.of(given)
        return delta_rows(rows, rows.zeros if given["state"] is None else given["state"])

    for name in MODELS:
        module = importlib.import_module(f"mlx_lm.models.{name}")
        for stock, by_kernel in ((ssm_update, ssm), (gated_delta_update, delta)):
            if hasattr(module, stock.__name__):
                monkeypatch.setattr(module, stock.__name__, in_harness(stock, by_kernel))
    with installed(inspected=False) as names:
        yield names


@functools.cache
def model_of(name: str) -> Any:
    return built({**ARCHITECTURES[name], **MODELS[name]})


def variants(model: Any) -> list[Variant]:
    return [
        Variant(kernel, shape, rows)
        for kernel, shapes in workload(model).recurrences.items()
        for shape in shapes
        for rows in RECURRENCE_ROWS
    ]


def fed(model: Any, cache: ModelCache, tokens: list[int]) -> mx.array:
    cache.mark(len(tokens))
    with cache.recording(len(tokens)):
        logits: mx.array = model(mx.array([tokens]), cache=cache.layers)[0]
    cache.advance(len(tokens))
    mx.eval(logits)
    return logits


@pytest.mark.parametrize("name", NAMES)
def test_passes_of_several_rows_have_the_bits_of_single_rows(
    name: str, on_a_mac: list[str]
) -> None:
    """Of all rows, whichever were rejected in between."""
    model = model_of(name)
    kernels = MetalKernels(model, dict.fromkeys(variants(model), FASTER))
    recorder = recorder_of(model, VOCABULARY)
    (kernel,) = (it.kernel for it in recurrences.NETS if it.stock == kernels.recurrences[0].stock)
    taking = pending_rows_of(model, VOCABULARY, recorder, kernels.recurrences)
    assert taking is not None
    random.seed(3)
    prompt = [random.randrange(VOCABULARY) for _ in range(9)]
    plain, ours = ModelCache(model), ModelCache(model, recorder=recorder, pending_rows=taking)
    for cache in (plain, ours):
        # As a prompt is read: by a pass that leaves nothing pending.
        cache.mark()
        model(mx.array([prompt]), cache=cache.layers)
        cache.advance(len(prompt))
    for count in (5, 1, 3, 8, 2, 1, 1, 4):
        tokens = [random.randrange(VOCABULARY) for _ in range(count)]
        kept = random.randint(1, count)
        launched = len(on_a_mac)
        found = fed(model, ours, tokens)
        assert set(on_a_mac[launched:]) <= {kernel}
        launched = len(on_a_mac)
        ours.rollback(ours.length - count + kept)
        assert len(on_a_mac) == launched, "nothing runs to take rows back"
        for row in range(kept):
            assert mx.array_equal(fed(model, plain, tokens[row : row + 1])[0], found[row])
    assert kernel in on_a_mac
    ours.fold()
    assert all(map(mx.array_equal, ours.states, plain.states))


def test_strict_takes_mamba2_though_it_is_slower() -> None:
    model = model_of("nemotron_h")
    slower = dict.fromkeys(variants(model), Outcome(None, seconds=2.0, mlx_seconds=1.0))
    assert not MetalKernels(model, slower).recurrences
    (found,) = MetalKernels(model, slower, strict=True).recurrences
    assert [found.takes(rows) for rows in (2, 16, 17)] == [True, True, False]


def test_a_shape_without_a_kernel_is_named() -> None:
    found = workload(tiny("nemotron_h"))
    assert not found.recurrences
    assert "recurrence: states of 8: the kernel takes 32, 64, 128, 256" in found.unsupported
