"""Passes and whole replies by kernels are those without."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import quantized
from harness import installed
from harness.installed import launching
from harness.running import run_once
from quantized import FASTER, all_faster, places

from macspec import Sampling, Session
from macspec.errors import ModelBrokenError
from macspec.events import WENT_ON, Finished, Notice
from macspec.kernels import Kernels
from macspec.metal.dispatch import MetalKernels
from macspec.metal.kernel import Kernel, Launch
from macspec.metal.variants import Choice, Variant
from macspec.models import Pair
from macspec.models.cached import CachedModel, TreePass
from macspec.verification import Tree

PROMPT = "Tell me a story about a dog and a cat"


def reply(pair: Pair, kernels: Kernels | str, rule: str, sampling: Sampling, **how: Any) -> Any:
    session = Session(pair, method="draft", depth=how.pop("depth", 4), rule=rule, kernels=kernels)
    *_, last = session.reply(PROMPT, sampling, max_tokens=how.pop("tokens", 8), raw=True)
    return last.token_ids, last.stats.drafted


REPLIES = [
    ("match", Sampling(temperature=0)),
    ("keyed", Sampling(temperature=0.8, seed=5)),
    ("block", Sampling(temperature=0.8, seed=5, top_k=40, top_p=0.9)),
    ("match", Sampling(temperature=0.8, seed=5, min_p=0.01)),
    ("block", Sampling(temperature=0.8, seed=5, repetition_penalty=1.2)),
]


@pytest.mark.parametrize(("rule", "sampling"), REPLIES)
def test_a_reply_by_kernels_is_the_reply_without(
    pair: Pair, kernels: MetalKernels, rule: str, sampling: Sampling
) -> None:
    expected, drafted = reply(pair, "off", rule, sampling)
    with installed(inspected=False) as names:
        assert reply(pair, kernels, rule, sampling) == (expected, drafted)
    assert drafted > 0
    used = {"verify_qmv", "verify_attention"}
    if not sampling.penalised:
        block = rule == "block"
        used |= {"accept_measure", "accept_block", "draft_sample"} if block else {"accept_draw"}
    assert used <= set(names)
    assert ("accept_walk" in names) or rule == "block"


def test_a_reply_in_instrumented_kernels_has_no_fault(pair: Pair, kernels: MetalKernels) -> None:
    sampling = Sampling(temperature=0.8, seed=5)
    expected = reply(pair, "off", "keyed", sampling, tokens=5)
    with installed() as names:
        assert reply(pair, kernels, "keyed", sampling, tokens=5) == expected
    assert names


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 7, 12, 20])
@pytest.mark.parametrize(("rule", "sampling"), REPLIES)
def test_replies_at_other_depths(
    pair: Pair, kernels: MetalKernels, rule: str, sampling: Sampling, depth: int
) -> None:
    expected = reply(pair, "off", rule, sampling, depth=depth, tokens=20)
    with installed(inspected=False):
        assert reply(pair, kernels, rule, sampling, depth=depth, tokens=20) == expected


def test_two_sessions_of_one_pair_in_turn(pair: Pair, kernels: MetalKernels) -> None:
    sampling = Sampling(temperature=0.8, seed=5)
    expected, _ = reply(pair, "off", "keyed", sampling)
    before = places(pair.target.module)
    ours = Session(pair, method="draft", depth=4, rule="keyed", kernels=kernels)
    stock = Session(pair, method="draft", depth=4, rule="keyed", kernels="off")
    with installed(inspected=False) as names:
        ending = {}
        replies = {
            session: session.reply(PROMPT, sampling, max_tokens=8, raw=True)
            for session in (ours, stock)
        }
        while replies:
            for session, events in list(replies.items()):
                count = len(names)
                event = next(events, None)
                assert session is ours or len(names) == count, "the other session launched"
                assert places(pair.target.module) == before, "between two rounds"
                if event is None:
                    ending[session] = session.finished
                    del replies[session]
    assert [ending[session].token_ids for session in (ours, stock)] == [expected, expected]
    assert names


@pytest.mark.parametrize("parents", [(-1, 0, 0, 2), (-1, -1, 0, 1, 1, 4)])
def test_a_trees_pass_by_kernels(
    pair: Pair, kernels: MetalKernels, parents: tuple[int, ...]
) -> None:
    tree = Tree(mx.arange(7, 7 + len(parents), dtype=mx.uint32), parents)
    unread = mx.array([3, 4], mx.uint32)
    outcomes = []
    for choice in (Kernels(), kernels):
        target = CachedModel(pair.target.module, pair.vocabulary, kernels=choice)
        with installed(inspected=False) as names:
            trees = TreePass(target)
            assert trees.reason is None
            target.read([5, 6, 7, 8, 9])
            outcomes.append(trees.logits(unread, tree))
    assert "verify_attention" in names
    assert mx.allclose(*outcomes, rtol=1e-4, atol=1e-4).item()


def test_a_quantized_cache_is_attended_to_where_it_lies(pair: Pair, kernels: MetalKernels) -> None:
    replies = []
    # Without kernels, with those of a plain cache, and with its own.
    for choice in (Kernels(), kernels, all_faster(pair, kv_bits=8)):
        session = Session(pair, method="draft", depth=4, kv_bits=8, kernels=choice)
        with installed(inspected=False) as names:
            *_, _ = session.reply(PROMPT, Sampling(temperature=0), max_tokens=6, raw=True)
        assert session.finished is not None
        replies.append((session.finished.token_ids, "verify_attention" in names))
    tokens = replies[0][0]
    assert replies == [(tokens, False), (tokens, False), (tokens, True)]


def test_a_broken_pass_ends_the_reply_with_one_clear_line(pair: Pair) -> None:
    module = quantized.model(vocabulary=pair.vocabulary)
    module.model.norm.weight = module.model.norm.weight * mx.nan
    broken = replace(pair, target=replace(pair.target, module=module))
    before = places(module)
    session = Session(broken, method="draft", depth=2, kernels=all_faster(broken))
    sampling = Sampling(temperature=0.8)
    with installed(inspected=False), pytest.raises(ModelBrokenError) as caught:
        list(session.reply(PROMPT, sampling, max_tokens=6, raw=True))
    assert "not numbers" in str(caught.value)
    assert places(module) == before


def test_choices_are_told_apart_by_rule_and_truncation(pair: Pair) -> None:
    shapes = {Choice("drawn", True, pair.vocabulary, mx.float32): FASTER}
    outcomes = {Variant("accept", shape, 5): outcome for shape, outcome in shapes.items()}
    kernels = MetalKernels(pair.target.module, outcomes)
    for sampling, used in (
        (Sampling(temperature=0.8, seed=5, top_p=0.9), True),
        (Sampling(temperature=0.8, seed=5), False),
        (Sampling(temperature=0, top_p=0.9), False),
    ):
        with installed(inspected=False) as names:
            reply(pair, kernels, "keyed", sampling, tokens=3)
        assert bool(names) is used


def test_a_fault_blames_what_ran_in_its_round_and_the_reply_goes_on(
    pair: Pair, tmp_path: Path
) -> None:
    sampling = Sampling(temperature=0.8, seed=5)
    expected, _ = reply(pair, "off", "keyed", sampling)
    known = all_faster(pair).outcomes
    kernels = MetalKernels(pair.target.module, known, faults=tmp_path / "faults")
    session = Session(pair, method="draft", depth=4, rule="keyed", kernels=kernels)
    launched: list[str] = []

    def call(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> list[mx.array]:
        launched.append(kernel.name)
        if launched.count("verify_attention") == 2:
            raise RuntimeError("[METAL] Command buffer execution failed: Caused GPU Hang Error.")
        return run_once(kernel, arrays, launch, inspected=False)

    with launching(call):
        events = list(session.reply(PROMPT, sampling, max_tokens=8, raw=True))
    assert isinstance(last := events[-1], Finished)
    assert last.token_ids == expected
    assert Notice(WENT_ON) in events
    (line,) = (tmp_path / "faults").read_text().splitlines()
    kinds = {name.partition(":")[0] for name in json.loads(line)}
    # The first round ended there, before the target's verdict.
    assert kinds == {"verify_qmm", "verify_attention", "draft_sample"}
    assert set(json.loads(line)) <= set(map(str, known))
    assert kernels.state.startswith("MLX's own")
    assert launched.count("verify_attention") == 2
