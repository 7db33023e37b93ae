"""The accept kernels give the verdicts of the portable rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
import references
from harness import inline, installed, run
from passes import (
    NEAR,
    TYPES,
    Pass,
    distribution,
    one_pass,
    outcome,
    passes,
    sampling_of,
    through_every_layer,
    verdict,
    wide,
)

from macspec.metal import accept
from macspec.metal.accept import BROKEN
from macspec.noise import ACCEPT, TARGET, Noise, bits, row_key, to_gumbel, to_uniform
from macspec.sampling import Sampling
from macspec.verification import Tree, TreeVerdict, Verdict, follow

LARGE, GEMMA = 151_936, 262_208
"""Vocabularies of Qwen3 and Gemma 3."""
PRIME = 1_009
RULES = ("block", "keyed", "match", "greedy")
TRUNCATED = Sampling(temperature=0.8, top_p=0.9, top_k=40, min_p=0.005)


def judged(case: Pass) -> tuple[int, int]:
    found = accept.accept(*case.arguments)
    assert type(found) is Verdict  # a tree's verdict would have its path kept in the cache
    return verdict(found)


def assert_right(case: Pass) -> bool:
    """Whether the kernels' verdict is the portable one; if not, rounding explains it."""
    mine = judged(case)
    expected = outcome(case)
    same = mine == verdict(references.accept(*case.arguments))
    if not same or mine != (expected.accepted, expected.token):
        assert expected.margin < NEAR, (case, mine, expected)
    return same


def forks(seed: int, count: int, shapes: tuple[tuple[int, int, mx.Dtype], ...]) -> int:
    """How many of so many random passes end otherwise than in the portable rules."""
    seen, differ = Counter[tuple[str, bool]](), 0
    with installed(inspected=False):
        for case in passes(seed, count, shapes):
            differ += not assert_right(case)
            seen[case.rule, outcome(case).accepted > 0] += 1
    assert min(seen[rule, some] for rule in RULES for some in (False, True)) > count // 50
    return differ


def test_verdicts_are_those_of_the_portable_rules() -> None:
    shapes = ((1, 5, mx.float32), (4, 61, mx.bfloat16), (8, 125, mx.float16), (0, 7, mx.float32))
    assert forks(1, 144, shapes) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_verdicts_are_those_of_the_portable_rules_many_times(seed: int) -> None:
    shapes = tuple(
        (depth, width, TYPES[(number + seed) % 3])
        for number, (depth, width) in enumerate(
            [(0, 125), (1, 7), (2, 61), (3, 8), (4, 125), (5, 61), (7, 31), (8, 500), (15, 31)]
        )
    )
    assert forks(seed, 700, shapes) <= 1


EDGES = tuple(
    (depth, width, dtype)
    for depth, width in ((0, 7), (0, 8), (1, PRIME), (4, 8), (7, PRIME), (8, 61), (15, 61))
    for dtype in TYPES
)


def follow_reference(
    sampling: Sampling, logits: mx.array, tree: Tree, noise: Noise | None
) -> TreeVerdict:
    """``accept.follow`` in plain MLX."""
    found = follow(sampling.scores(logits), tree, noise)
    accepted, token = references.or_broken(references.is_broken(logits), found)
    return TreeVerdict(accepted, token, found.path)


def every_layer(depth: int, width: int, dtype: mx.Dtype) -> None:
    rng = np.random.default_rng([depth, width])
    with through_every_layer(skewed=depth % 2 == 1) as ran:
        for rule in RULES:
            assert_right(one_pass(rng, rule, depth, width, dtype))
    assert {one.kernel for one in ran} >= {"accept_draw", "accept_walk"}


@pytest.mark.parametrize(("depth", "width", "dtype"), EDGES[::7])
def test_every_layer_passes(depth: int, width: int, dtype: mx.Dtype) -> None:
    every_layer(depth, width, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "width", "dtype"), EDGES)
def test_every_layer_passes_everywhere(depth: int, width: int, dtype: mx.Dtype) -> None:
    every_layer(depth, width, dtype)


@pytest.mark.parametrize(
    ("rule", "depth", "dtype"),
    [
        ("greedy", 2, mx.float16),
        ("keyed", 1, mx.bfloat16),
        ("keyed", 32, mx.bfloat16),
        ("block", 1, mx.bfloat16),
        ("block", 4, mx.float32),
    ],
)
def test_a_whole_vocabulary(rule: str, depth: int, dtype: mx.Dtype) -> None:
    # The instrumented run of 33 rows would take half a minute.
    width = GEMMA if depth == 1 else LARGE
    with installed(inspected=False) if depth == 32 else through_every_layer():
        assert_right(one_pass(np.random.default_rng(depth), rule, depth, width, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_whole_vocabulary_in_every_type(rule: str, dtype: mx.Dtype) -> None:
    with through_every_layer():
        for depth in (1, 8):
            assert_right(one_pass(np.random.default_rng(depth), rule, depth, LARGE, dtype))


@pytest.mark.parametrize("rule", RULES)
def test_two_launches_and_no_host_round_trip(rule: str) -> None:
    """Tracing fails where a value is read."""
    case = one_pass(np.random.default_rng(3), rule, 4, 61, mx.float32)
    arrays = [case.logits, case.drafted, *([] if case.log_q is None else [case.log_q])]
    records: list[dict[str, object]] = []

    def traced(
        logits: mx.array, drafted: mx.array, log_q: mx.array | None = None
    ) -> list[mx.array]:
        found = accept.accept(case.sampling, logits, drafted, log_q, case.noise)
        return [found.accepted, found.token]

    mx.export_function(records.append, traced, *arrays)
    assert sum(record.get("name") == "CustomKernel" for record in records) == 2


BAD = {"NaN": [np.nan], "+inf": [np.inf], "nothing": [-np.inf] * 61}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", BAD)
def test_a_row_that_nothing_can_be_drawn_from_breaks_the_pass(rule: str, bad: str) -> None:
    rng = np.random.default_rng(4)
    with installed(inspected=False):
        for row in (0, 2, 3):
            case = one_pass(rng, rule, 3, 61, mx.bfloat16)
            logits = wide(case.logits)
            at = rng.choice(case.size, min(len(BAD[bad]), case.size), replace=False)
            logits[row, at] = BAD[bad][: len(at)]
            broken = replace(case, logits=mx.array(logits, mx.float32).astype(mx.bfloat16))
            assert judged(broken) == (BROKEN, 0)
            assert verdict(references.accept(*broken.arguments)) == (BROKEN, 0)


def test_33_rows_of_which_the_last_is_bad() -> None:
    rng = np.random.default_rng(5)
    with installed(inspected=False):
        for rule in RULES:
            case = one_pass(rng, rule, 32, 61, mx.float32)
            assert_right(case)
            ids, bad = mx.arange(33)[:, None], mx.array(mx.nan)
            broken = replace(case, logits=mx.where(ids == 32, bad, case.logits))
            assert judged(broken) == (BROKEN, 0)


@pytest.mark.parametrize("at", range(3))
def test_a_drafted_token_that_the_draft_excludes_breaks_the_pass(at: int) -> None:
    case = one_pass(np.random.default_rng(6), "block", 3, 61, mx.float32)
    assert case.log_q is not None
    here = (mx.arange(3)[:, None] == at) & (mx.arange(case.log_q.shape[1]) == case.drafted[at])
    broken = replace(case, log_q=mx.where(here, -mx.inf, case.log_q))
    with installed(inspected=False):
        assert judged(broken) == (BROKEN, 0)
    assert verdict(references.accept(*broken.arguments)) == (BROKEN, 0)


def test_equal_logits() -> None:
    """Truncation to k keeps the lowest ids, top-p all of them, and greedy takes the first."""
    logits, drafted = mx.full((2, 61), 2.5), mx.array([0], mx.uint32)
    with installed(inspected=False):
        assert verdict(accept.accept(Sampling(temperature=0), logits, drafted, None, None)) == (
            1,
            0,
        )
        for sampling, kept in ((Sampling(top_k=5), 5), (Sampling(top_p=0.1), 61)):
            tokens = set()
            for draw in range(100):
                noise = Noise(draw, 0, 0, 2, 61)
                mine = accept.accept(sampling, logits, drafted, None, noise)
                assert verdict(mine) == verdict(
                    references.accept(sampling, logits, drafted, None, noise)
                )
                tokens.add(mine.token.item())
            assert max(tokens) < kept
            assert len(tokens) > kept * 2 // 3


def measured(sampling: Sampling, logits: mx.array) -> list[set[int]]:
    """The ids that ``accept_measure`` keeps of each row [V]."""
    options = accept.sampling_options(sampling)
    launch = accept.measure_launch(logits, sampling)
    scales, cuts = (np.array(x) for x in accept.MEASURE((logits, options), launch))
    source = """
        using namespace macspec;
        const uint i = thread_position_in_grid.x, width = logits_shape[1];
        const uint row = i / width;
        const Row<decltype(logits)> found = {
            logits, width, scales[2 * row], options[0], options[2],
            {cuts[2 * row], cuts[2 * row + 1]}};
        kept[i] = keeps(found, T(logits[i]), i % width);
    """
    names = ("logits", "scales", "cuts", "options")
    tell = inline(source, names, ("kept",), header=accept.MEASURE.header)
    arrays = (logits, mx.array(scales), mx.array(cuts), options)
    count = logits.size
    told = accept.Launch(
        (count, 1, 1), (32, 1, 1), (("T", logits.dtype),), ((count,),), (mx.uint32,)
    )
    (kept,) = tell(arrays, told)
    return [set(np.flatnonzero(row)) for row in np.array(kept).reshape(logits.shape)]


@pytest.mark.parametrize("dtype", TYPES)
def test_kept_sets_and_normalisers(dtype: mx.Dtype) -> None:
    rng = np.random.default_rng(7)
    compared = 0
    with installed(inspected=False):
        for number in range(40):
            width = (61, 500)[number % 2]
            sampling = sampling_of(rng, width)
            made = rng.normal(scale=3, size=(8, width))
            logits = mx.array(np.rint(made) if number % 3 else made, mx.float32).astype(dtype)
            for mine, row in zip(measured(sampling, logits), wide(logits), strict=True):
                expected = distribution(sampling, row)
                same = mine == set(np.flatnonzero(expected.log_p > -np.inf))
                assert same or expected.near
                compared += same
    assert compared >= 316


@pytest.mark.parametrize("stream", range(4))
def test_noise_has_the_bits_of_the_portable_noise(stream: int) -> None:
    noise = Noise(2**64 - 12345, 77, 2**17 - 3, 6, 300)
    source = """
        using namespace macspec;
        const uint id = thread_position_in_grid.x, row = thread_position_in_grid.y;
        const uint2 key = row_key(place, uint(STREAM), row);
        raw[row * 320 + id] = bits_at(key, id);
        uniform[row * 320 + id] = uniform_at(key, id);
        gumbel[row * 320 + id] = gumbel_at(key, id);
    """
    probe = inline(source, ("place",), ("raw", "uniform", "gumbel"), header=accept.DRAW.header)
    launch = accept.Launch(
        (320, 6, 1), (32, 1, 1), (("STREAM", stream),),
        ((6, 320),) * 3, (mx.uint32, mx.float32, mx.float32),
    )  # fmt: skip
    raw, uniform, gumbel = run(probe, (accept.noise_place(noise),), launch, same_bits=True)
    draw = 0 if stream == TARGET else noise.draw
    keys = mx.array([row_key(noise.seed, stream, noise.position + i, draw) for i in range(6)])
    expected = bits(keys.astype(mx.uint32), mx.arange(320, dtype=mx.uint32))
    assert mx.array_equal(raw, expected)
    assert mx.array_equal(uniform, to_uniform(expected))
    assert mx.allclose(gumbel, to_gumbel(expected), rtol=1e-5, atol=1e-6)
    if stream == ACCEPT:
        assert mx.array_equal(uniform[:, 0], noise.uniform(ACCEPT))


def most_reads(case: Pass) -> dict[str, tuple[int, int]]:
    """How often the least and the most read byte of the logits was read, by kernel."""
    with through_every_layer() as ran:
        judged(case)
    found = {one.kernel: one.outputs.report.traffic.get("logits") for one in ran}
    return {kernel: (t.least, t.most) for kernel, t in found.items() if t is not None}


def test_each_logit_is_read_as_often_as_is_said() -> None:
    rng = np.random.default_rng(8)

    def a_pass(rule: str, sampling: Sampling, dtype: mx.Dtype = mx.bfloat16) -> Pass:
        case = one_pass(rng, rule, 4, 4001, dtype)
        logits = mx.array(rng.normal(scale=3, size=(5, 4001)), mx.float32)
        return replace(case, sampling=sampling, logits=logits.astype(dtype))

    plain = Sampling(temperature=0.7, min_p=0.01)
    assert most_reads(a_pass("greedy", Sampling(temperature=0)))["accept_draw"] == (1, 1)
    assert most_reads(a_pass("keyed", plain))["accept_draw"] == (2, 2)
    assert most_reads(a_pass("keyed", TRUNCATED))["accept_draw"][1] <= 2 + 7
    block = most_reads(a_pass("block", plain))
    assert block["accept_measure"] == (2, 2)
    assert block["accept_block"][1] <= 3 + 1  # and the drafted token's own
    assert most_reads(a_pass("block", TRUNCATED, mx.float32))["accept_measure"][1] <= 2 + 12


@pytest.mark.parametrize("dtype", TYPES)
def test_the_search_is_as_long_at_worst_as_is_said(dtype: mx.Dtype) -> None:
    """Two values that no bound parts but the last, each many times."""
    values = {mx.float32: 1 + 2.0**-23, mx.float16: 1 + 2.0**-10, mx.bfloat16: 1 + 2.0**-7}
    most = 0
    for low in (1.0, -60_000.0):
        logits = np.full((1, 4001), low)
        logits[0, ::2] = low * values[dtype]
        array = mx.array(logits, mx.float32).astype(dtype)
        for top_k in (1, 2500, 4000):
            with through_every_layer() as ran:
                tokens = mx.zeros((0,), mx.uint32)
                noise = Noise(1, 0, 0, 1, 4001)
                accept.accept(Sampling(top_k=top_k), array, tokens, None, noise)
            traffic = ran[0].outputs.report.traffic["logits"]
            assert traffic.most <= 2 + (12 if dtype == mx.float32 else 7) + 2
            most = max(most, traffic.most)
    assert most >= (12 if dtype == mx.float32 else 7)


@pytest.mark.parametrize("greedy", [True, False])
def test_trees_are_followed_as_the_portable_walk_does(greedy: bool) -> None:
    rng = np.random.default_rng(9)
    lengths = Counter[int]()
    with installed(inspected=False):
        for number in range(120):
            nodes = (1, 3, 6, 14, 32)[number % 5]
            parents = tuple(int(rng.integers(-1, node)) for node in range(nodes))
            tree = Tree(mx.array(rng.integers(0, 4, nodes), mx.uint32), parents)
            logits = mx.array(rng.normal(scale=2, size=(nodes + 1, 4)), mx.float32)
            sampling = Sampling(temperature=0) if greedy else sampling_of(rng, 4)
            noise = None if greedy else Noise(number, 1, 50, tree.depth + 1, 4)
            mine = accept.follow(sampling, logits, tree, noise)
            theirs = follow_reference(sampling, logits, tree, noise)
            assert verdict(mine) == verdict(theirs)
            assert mine.path.tolist() == theirs.path.tolist()
            lengths[verdict(mine)[0]] += 1
    assert lengths[0] > 10
    assert sum(lengths[length] for length in lengths if length > 1) > 10


def test_a_tree_through_every_layer() -> None:
    tree = Tree(mx.array([3, 5, 3, 1, 1], mx.uint32), (-1, -1, 0, 0, 3))
    logits = mx.zeros((6, 7)).at[mx.arange(6), mx.array([3, 1, 6, 6, 1, 2])].add(9)
    with through_every_layer():
        mine = accept.follow(Sampling(temperature=0), logits, tree, None)
    assert (*verdict(mine), mine.path.tolist()) == (3, 2, [0, 3, 4])


def test_what_the_kernels_do_not_read() -> None:
    assert accept.supports(mx.zeros((33, 8), mx.float16)) is None
    assert accept.supports(mx.zeros((34, 8))) == "34 rows: the kernels take at most 33"
    assert "int32" in (accept.supports(mx.zeros((2, 8), mx.int32)) or "")
    assert accept.supports(mx.zeros((1, GEMMA))) is None
    assert "1048577 columns" in (accept.supports(mx.zeros((1, 2**20 + 1))) or "")
