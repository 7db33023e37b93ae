"""Walks along a block on the device: the tokens and distributions of the portable steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from blockfiles import block_of
from harness import installed
from passes import TYPES, sampling_of, through_every_layer
from test_decoding import PROMPT, session_of, tokens_of
from tinymodels import VOCABULARY, tiny

from macspec import Sampling, load_pair
from macspec.metal import walks
from macspec.metal.dispatch import MetalKernels
from macspec.metal.outcomes import Outcome
from macspec.metal.variants import SAMPLE, WALK_ROWS, Choice, Variant, variants_for
from macspec.metal.walks import Walk
from macspec.models import Pair
from macspec.noise import Noise

WIDTH = 61
ANCHOR = mx.array([7], mx.uint32)


@pytest.fixture(scope="module")
def pocket() -> Pair:
    return load_pair(draft="built-in")


def selection(rng: np.random.Generator, rows: int, count: int, dtype: mx.Dtype) -> tuple[Any, Any]:
    """Random tables, and the parts of a block with equal scores among them."""

    def some(*shape: int) -> mx.array:
        return mx.array(rng.normal(size=shape) * 0.4, mx.float32).astype(dtype)

    ids = np.stack([rng.choice(WIDTH, count, replace=False) for _ in range(rows)])
    unary = np.rint(rng.normal(size=(rows, count)) * 2)
    parts = some(rows, 40), mx.array(ids, mx.uint32), mx.array(unary, mx.float32)
    return (some(WIDTH, 40), some(WIDTH, 40)), parts


def compare(number: int, rows: int, count: int) -> None:
    rng = np.random.default_rng(number)
    tables, parts = selection(rng, rows, count, TYPES[number % 3])
    keeps_q, greedy = number % 2 == 0, number % 5 == 4
    noise = None if greedy else Noise(int(rng.integers(2**63)), number, 10 * number, 8, WIDTH)
    sampling = Sampling(temperature=0) if greedy else sampling_of(rng, count)
    given = sampling, tables, parts, ANCHOR, noise
    (tokens, log_q), right = (
        run(*given, keeps_q=keeps_q) for run in (walks.select, walks.reference)
    )
    assert tokens.tolist() == right[0].tolist()
    if not greedy:
        assert mx.allclose(mx.exp(log_q), mx.exp(right[1]), rtol=0, atol=1e-4)
        assert mx.array_equal(log_q > -mx.inf, right[1] > -mx.inf)


def test_selections_are_the_portable_ones() -> None:
    with installed(inspected=False):
        for number in range(40):
            compare(number, 1 + number % 7, (3, 16, 32)[number % 3])


@pytest.mark.parametrize(("rows", "count"), [(1, 3), (7, 16)])
def test_every_layer_passes_a_selection(rows: int, count: int) -> None:
    with through_every_layer() as ran:
        for number in (2, 3, 4):
            compare(number, rows, count)
    traffic = ran[0].outputs.report.traffic
    assert traffic["projected"].most <= count
    assert traffic["unary"].most == 1


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_layer_passes_a_row_of_pairs(dtype: mx.Dtype, reduced: bool) -> None:
    rng = np.random.default_rng(3)
    tables, _ = selection(rng, 1, 3, dtype)
    places = None
    if reduced:
        tables = tables[0], tables[1][:40]
        places = mx.array([it // 2 if it % 2 else 40 for it in range(WIDTH)])
    logits = mx.array(rng.normal(size=(1, len(tables[1]))), mx.float32)
    given = tables, logits, ANCHOR, places, WIDTH - 2
    with through_every_layer() as ran:
        found = walks.markov_row(*given)
    right = walks.markov_reference(*given)
    known = right > -mx.inf
    assert mx.array_equal(found > -mx.inf, known)
    assert mx.allclose(mx.where(known, found, 0), mx.where(known, right, 0), atol=1e-5)
    assert ran[0].outputs.report.traffic["after"].most == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_damaged_numbers_stay_a_distribution(bad: float) -> None:
    tables, (projected, ids, unary) = selection(np.random.default_rng(1), 2, 16, mx.float32)
    parts = projected, ids, mx.where(mx.arange(16) == 3, bad, unary)
    noise = Noise(1, 2, 3, 4, WIDTH)
    with installed():
        tokens, log_q = walks.select(Sampling(), tables, parts, ANCHOR, noise, keeps_q=True)
        logits = mx.where(mx.arange(WIDTH) == 5, bad, mx.zeros((1, WIDTH)))
        row = walks.markov_row(tables, logits, ANCHOR, None, WIDTH)
    assert set(tokens.tolist()) <= set(ids.flatten().tolist())
    assert mx.allclose(mx.sum(mx.exp(log_q), axis=-1), mx.ones(2))
    assert mx.all(mx.abs(row) < mx.inf).item()


# ---- whole replies ------------------------------------------------------------------------------

RULES = [
    ("match", Sampling(temperature=0)),
    ("keyed", Sampling(temperature=0.8, seed=5)),
    ("block", Sampling(temperature=0.8, seed=5, top_k=20, top_p=0.9)),
]
KERNEL = {"dflash2": "selector_walk", "specforge": "markov_row"}


def kernels_of(head: Any, target: Any, used: bool = True) -> MetalKernels:
    """All kernels of the walk of a head."""
    shape = Walk.of(head.module, VOCABULARY)
    assert shape is not None
    choices = [
        Variant(SAMPLE, Choice(rule, cut, VOCABULARY, mx.float32), 1)
        for rule, cut in (("greedy", False), ("drawn", False), ("block", True))
    ]
    outcome = Outcome(None, 1.0, 2.0) if used else Outcome("wrong")
    asked = Variant(shape.kernel, shape, WALK_ROWS), *choices
    return MetalKernels(target, dict.fromkeys(asked, outcome))


@pytest.mark.parametrize("name", KERNEL)
@pytest.mark.parametrize(("rule", "sampling"), RULES)
def test_a_reply_by_walks_is_the_reply_without(
    pocket: Pair, tmp_path: Path, name: str, rule: str, sampling: Sampling
) -> None:
    head = block_of(pocket, "llama", name, tmp_path)
    kernels = kernels_of(head, tiny("llama"))
    ways = {"head": head, "method": head.kind, "depth": 5, "rule": rule}
    plain = session_of(pocket, "llama", kernels="off", **ways)
    session = session_of(pocket, "llama", kernels=kernels, **ways)
    expected = tokens_of(plain, PROMPT, sampling, 6)
    with installed(inspected=False) as names:
        assert tokens_of(session, PROMPT, sampling, 6) == expected
    assert names.count(KERNEL[name]) >= 1
    assert session.stats.drafted == plain.stats.drafted


@pytest.mark.parametrize("name", KERNEL)
def test_a_walk_stays_on_the_device(pocket: Pair, tmp_path: Path, name: str) -> None:
    """Tracing fails where a value is read."""
    head = block_of(pocket, "llama", name, tmp_path).module
    mx.eval(head.parameters(), head.places)
    rows = mx.random.normal((5, 64), key=mx.random.key(2))
    logits = mx.random.normal((5, 61 if name == "dflash2" else 40), key=mx.random.key(3))
    records: list[dict[str, object]] = []

    def walk(anchor: mx.array, rows: mx.array, logits: mx.array) -> list[mx.array]:
        tokens, log_q = walks.walked(
            head,
            head.prepared(rows, logits),
            anchor,
            VOCABULARY,
            Sampling(temperature=0.9),
            Noise(1, 0, 10, 6, VOCABULARY),
            keeps_q=True,
        )
        assert log_q is not None
        return [tokens, log_q]

    mx.export_function(records.append, walk, ANCHOR, rows, logits)
    launches = sum(record.get("name") == "CustomKernel" for record in records)
    assert launches == (1 if name == "dflash2" else 10)


def test_a_kernel_that_failed_is_not_used(pocket: Pair, tmp_path: Path) -> None:
    head = block_of(pocket, "llama", "dflash2", tmp_path)
    kernels = kernels_of(head, tiny("llama"), used=False)
    ways = {"head": head, "method": head.kind, "depth": 5, "rule": "block"}
    session = session_of(pocket, "llama", kernels=kernels, **ways)
    with installed(inspected=False) as names:
        assert tokens_of(session, PROMPT, RULES[1][1], 6)
    assert not names


@pytest.mark.parametrize("name", ["dflash2", "specforge", "z-lab"])
def test_what_a_pair_asks_for(pocket: Pair, tmp_path: Path, name: str) -> None:
    head = block_of(pocket, "llama", name, tmp_path)
    target = replace(pocket.target, module=tiny("llama"), width=VOCABULARY)
    pair = replace(pocket, target=target, draft=None, head=head, vocabulary=VOCABULARY)
    asked = {it.kernel for it in variants_for(pair)[1]}
    assert SAMPLE in asked
    assert asked & {*KERNEL.values()} == ({KERNEL[name]} if name in KERNEL else set())
