"""Trees: exact for every shape; on chains the chain rules, with shared noise plain decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from exact import Array, Chain, Emission, Family, draw
from families import KINDS, SIZE, family
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mutants import mutated

from macspec.noise import TARGET, Noise
from macspec.sampling import Sampling
from macspec.verification import Keyed, Match, Tree, follow, tree

EXACT = 1e-12
WIDTH = 40

Edges = tuple[int, ...]

SHAPES: tuple[Edges, ...] = (
    (-1,),
    (-1, -1),
    (-1, -1, -1),
    (-1, 0, 0),
    (-1, 0, -1),
    (-1, 0, 0, 2),
    (-1, -1, 0, 1),
    (-1, -1, 1, 1),
)

parents = st.lists(st.integers(-1, 31), min_size=1, max_size=tree.MAX_NODES).map(
    lambda drawn: tuple(min(parent, node - 1) for node, parent in enumerate(drawn))
)


def nodes(tokens: Chain, edges: Edges) -> Tree:
    return Tree(mx.array(tokens, mx.uint32), edges)


def text(tokens: Chain, edges: Edges, node: int) -> Chain:
    """The tokens from the root to a node."""
    return () if node == -1 else (*text(tokens, edges, edges[node]), tokens[node])


def labels(rng: np.random.Generator, edges: Edges, *, twins: bool) -> Chain:
    """Tokens of the nodes; siblings differ unless ``twins``."""
    tokens: list[int] = []
    for node, parent in enumerate(edges):
        taken = {tokens[other] for other in range(node) if edges[other] == parent}
        free = [token for token in range(SIZE) if twins or token not in taken]
        tokens.append(int(rng.choice(free)))
    return tuple(tokens)


@cache
def walk(drawn: Chain, tokens: Chain, edges: Edges) -> tuple[Chain, int]:
    """The product's walk where the target draws ``drawn`` at the rows: path, next token."""
    verdict = follow(mx.eye(max(SIZE, *drawn) + 1)[mx.array(drawn)], nodes(tokens, edges), None)
    path: Any = verdict.path.tolist()
    return tuple(path[: int(verdict.accepted.item())]), int(verdict.token.item())


def rows(models: Family, tokens: Chain, edges: Edges) -> Array:
    """p [N + 1, V] at the root and after each node."""
    paths = [text(tokens, edges, node) for node in range(-1, len(edges))]
    return np.stack([models.p[len(path)][path] for path in paths])


def depth_of(edges: Edges) -> int:
    return max(len(text(edges, edges, node)) for node in range(len(edges)))


@pytest.mark.parametrize("edges", SHAPES)
def test_a_tree_of_any_shape_is_exact(edges: Edges) -> None:
    rng = np.random.default_rng([len(edges), *(parent + 1 for parent in edges)])
    for kind in KINDS:
        models = family(kind, depth_of(edges), rng)
        tokens = labels(rng, edges, twins=False)
        p = rows(models, tokens, edges)
        emission = Emission(models)
        for drawn in product(range(SIZE), repeat=len(p)):
            path, token = walk(drawn, tokens, edges)
            chance = float(np.prod(p[np.arange(len(p)), drawn]))
            head = tuple(tokens[node] for node in path)
            emission.add(chance, head, np.eye(SIZE)[token])
        assert emission.error < EXACT


@pytest.mark.parametrize("edges", SHAPES)
def test_acceptance_is_what_the_target_gives_the_children(edges: Edges) -> None:
    rng = np.random.default_rng(len(edges))
    models = family("flat", depth_of(edges), rng)
    tokens = labels(rng, edges, twins=False)
    p = rows(models, tokens, edges)
    expected = sum(
        float(np.prod([models.p[i][path[:i]][path[i]] for i in range(len(path))]))
        for path in (text(tokens, edges, node) for node in range(len(edges)))
    )
    accepted = sum(
        float(np.prod(p[np.arange(len(p)), drawn])) * len(walk(drawn, tokens, edges)[0])
        for drawn in product(range(SIZE), repeat=len(p))
    )
    assert accepted == pytest.approx(expected, abs=EXACT)


def one_noise(models: Family, points: int, rng: np.random.Generator) -> Family:
    """The same models with rows rounded at random to multiples of 1 / points."""

    def coarse(table: Array) -> Array:
        flat = table.reshape(-1, table.shape[-1])
        return (rng.multinomial(points, flat) / points).reshape(table.shape)

    return Family([coarse(table) for table in models.p], models.q)


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("edges", SHAPES)
def test_rows_of_one_depth_may_share_their_noise(edges: Edges, twins: bool) -> None:
    """One draw per position, whatever is drafted: exact, and what plain decoding writes."""
    rng = np.random.default_rng(len(edges))
    depth = depth_of(edges)
    for kind in ("near", "peaky", "zeros_in_p", "point_mass_target"):
        points = 8 if depth < 3 else 5
        models = one_noise(family(kind, depth, rng), points, rng)
        tokens = labels(rng, edges, twins=twins)
        p = rows(models, tokens, edges)
        depths = (0, *nodes(tokens, edges).depths)
        emission = Emission(models)
        for omega in product(range(points), repeat=depth + 1):
            drawn = tuple(draw(row, omega[d], points) for row, d in zip(p, depths, strict=True))
            path, token = walk(drawn, tokens, edges)
            head = tuple(tokens[node] for node in path)
            written: Chain = ()
            for table, o in zip(models.p, omega, strict=True):
                written += (draw(table[written], o, points),)
            assert (*head, token) == written[: len(head) + 1]
            emission.add(points ** -(depth + 1), head, np.eye(SIZE)[token])
        assert emission.error < EXACT


def plain_walk(scores: Array, tokens: Chain, edges: Edges, seed: int, at: int) -> list[int]:
    """Nodes and then the token that one pass after another with one row each would give."""
    node, found = -1, []
    while True:
        position = at + len(found)
        gumbel = np.array(Noise(seed, 9, position, 1, WIDTH).gumbel(TARGET)[0])
        token = int(np.argmax(scores[node + 1] + gumbel))
        children = [i for i, parent in enumerate(edges) if parent == node and tokens[i] == token]
        if not children:
            return [*found, token]
        node = children[0]
        found.append(node)


def check_walk(judge: Callable[..., Any], edges: Edges, seed: int) -> tuple[list[int], list[int]]:
    """What the judge and what the plain walk find in a tree of likely tokens."""
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    scores = rng.normal(size=(len(edges) + 1, WIDTH)).astype(np.float32)
    for node, parent in enumerate(edges):
        taken = {tokens[other] for other in range(node) if edges[other] == parent}
        tokens.append(int(rng.choice([token for token in range(WIDTH) if token not in taken])))
        scores[parent + 1, tokens[node]] += 6
    drafted = nodes(tuple(tokens), edges)
    noise = Noise(seed, draw=2, position=7, rows=drafted.depth + 1, width=WIDTH)
    verdict = judge(mx.array(scores), drafted, noise)
    path: Any = verdict.path.tolist()
    got = [*path[: verdict.accepted.item()], verdict.token.item()]
    return got, plain_walk(scores, tuple(tokens), edges, seed, 7)


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(parents, st.integers(0, 2**32))
def test_each_depth_draws_with_its_own_position(edges: Edges, seed: int) -> None:
    got, expected = check_walk(follow, edges, seed)
    assert got == expected


MUTANTS = {
    "noise by row": ("[0, *shape.depths]", "[min(i, tree.depth) for i in range(len(scores))]"),
    "noise of the row before": ("[0, *shape.depths]", "[0, *(d - 1 for d in shape.depths)]"),
    "judged by its own row": ("parent + 1 for parent in tree.parents",
                              "node + 1 for node in range(len(tree.parents))"),
    "parents may be refused": ("~mx.any(mx.array(shape.sees) & refused[None], axis=1)", "~refused"),
    "one refusal ends all": ("& refused[None]", "| refused[None]"),
    "the longest branch is accepted": ("mx.where(alive, mx.array(shape.depths, mx.int32), 0)",
                                  "mx.array(shape.depths, mx.int32)"),
    "bonus of the root": ("mx.take(drawn, row)", "drawn[0]"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_walk_rejects_this_judge(name: str) -> None:
    changed = mutated(tree.follow, *MUTANTS[name])
    walks = [check_walk(changed, edges, seed) for edges in SHAPES for seed in range(6)]
    assert any(got != expected for got, expected in walks)


def test_the_walk_passes_the_product_through_the_same_door() -> None:
    same = mutated(tree.follow, "shape = ", "shape = ")
    walks = [check_walk(same, edges, seed) for edges in SHAPES for seed in range(6)]
    assert all(got == expected for got, expected in walks)
    assert {len(got) for got, _ in walks} >= {1, 2, 3, 4}


@pytest.mark.parametrize("depth", [0, 1, 2, 5, 32])
@pytest.mark.parametrize("greedy", [False, True])
def test_on_a_chain_it_is_match_and_keyed(depth: int, greedy: bool) -> None:
    kept = set()
    for seed in range(12):
        rng = np.random.default_rng([seed, depth])
        scores = mx.array(rng.normal(size=(depth + 1, WIDTH)), mx.float32)
        noise = None if greedy else Noise(seed, 1, 4, depth + 1, WIDTH)
        drawn = scores if noise is None else scores + noise.gumbel(TARGET)
        stop = rng.integers(0, depth + 1)
        drafted = (mx.argmax(drawn, axis=-1)[:depth] + (mx.arange(depth) >= stop)) % WIDTH
        verdict = follow(scores, Tree(drafted, tuple(range(-1, depth - 1))), noise)
        kept.add(verdict.accepted.item())
        assert verdict.path.tolist() == [*range(verdict.accepted.item()), *[-1] * depth][:depth]
        for rule in (Match(), Keyed()):
            chain = rule.accept(scores, drafted, None, noise)
            assert verdict.accepted.item() == chain.accepted.item()
            assert verdict.token.item() == chain.token.item()
            assert verdict.accepted.dtype == chain.accepted.dtype
            assert verdict.token.dtype == chain.token.dtype
    assert len(kept) > min(depth, 2)


def test_equal_siblings_are_one_guess() -> None:
    drafted = nodes((5, 5, 2, 3), (-1, -1, 0, 1))
    for after, path in ((2, [0, 2]), (3, [1, 3])):
        scores = mx.eye(WIDTH)[mx.array([5, after, after, 8, 9])]
        verdict = follow(scores, drafted, None)
        assert verdict.path.tolist() == path


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(parents, st.integers(0, 12), st.integers(1, 9))
def test_recent_tokens_are_those_of_the_branch(edges: Edges, known: int, count: int) -> None:
    rng = np.random.default_rng(known)
    committed = [int(token) for token in rng.integers(0, 50, known)]
    tokens = tuple(int(token) for token in rng.integers(0, 50, len(edges)))
    got: Any = nodes(tokens, edges).recent(committed, count).tolist()
    assert len(got) == len(edges) + 1
    sampling = Sampling(presence_penalty=1, penalty_context=count)
    for row, ids in enumerate(got):
        before = text(tokens, edges, row - 1)
        assert [i for i in ids if i >= 0] == [*committed, *before][-count:]
        chain = sampling.recent([*committed, *before], None, 1)
        assert chain is not None
        assert [i for i in ids if i >= 0] == [i for i in chain[0].tolist() if i >= 0]


@pytest.mark.parametrize(
    ("count", "edges", "message"),
    [
        (2, (-1,), r"1 parents for tokens of shape \(2,\)"),
        (2, (-1, 1), "a parent does not come before its child"),
        (2, (-1, -2), "a parent does not come before its child"),
        (33, tuple(range(-1, 32)), "33 nodes; the most is 32"),
    ],
)
def test_what_is_no_tree(count: int, edges: Edges, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree(mx.zeros((count,), mx.uint32), edges)


def test_noise_must_reach_the_deepest_node() -> None:
    scores = mx.zeros((4, WIDTH))
    with pytest.raises(ValueError, match="2 rows of noise for a tree of depth 2"):
        follow(scores, nodes((1, 2, 3), (-1, 0, -1)), Noise(1, 0, 0, 2, WIDTH))
