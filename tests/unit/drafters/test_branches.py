"""Proposals with a branch: the second best token, and two continuations as one tree."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_draft_model import PIPELINES, TOKENS, WIDTH, context, drafter, rows_of

from macspec.drafters.branches import branched
from macspec.noise import TARGET, Noise
from macspec.sampling import Sampling
from macspec.verification import Tree

GREEDY = Sampling(temperature=0)


@pytest.mark.parametrize("noised", [False, True])
@pytest.mark.parametrize("sampling", [GREEDY, *PIPELINES])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_the_sibling_is_the_second_best_of_the_same_scores(
    sampling: Sampling, at: int, noised: bool
) -> None:
    noise = None
    if noised:
        noise = Noise(2, draw=0, position=len(TOKENS), rows=5, width=WIDTH).gumbel(TARGET)
    model_of_chain, model_of_tree = drafter(), drafter()
    chain = model_of_chain[0].propose(context(sampling, noise, keeps_q=False), 4)
    tree = model_of_tree[0].propose_tree(context(sampling, noise), 4, at)
    assert chain is not None
    assert tree.log_q is None
    assert tree.parents == (-1, 0, 1, 2, at - 1)
    ids: Any = tree.tokens.tolist()
    assert ids[:4] == chain.tokens.tolist()
    row = rows_of(model_of_tree[1], sampling, ids[:4])[at]
    drawn = np.array(row if noise is None else row + noise[at])
    assert np.argsort(-drawn)[:2].tolist() == [ids[at], ids[4]]
    assert Tree(tree.tokens, tree.parents).depths == (1, 2, 3, 4, at + 1)
    # A branch is never read: the model stands where the chain would have left it.
    assert model_of_tree[1].read == model_of_chain[1].read


def test_a_tree_of_two_guesses_for_one_token() -> None:
    proposal = drafter()[0].propose_tree(context(GREEDY, None), 1, 0)
    assert proposal.parents == (-1, -1)
    ids: Any = proposal.tokens.tolist()
    assert len(set(ids)) == 2


def test_where_there_is_no_second_token_the_sibling_is_any() -> None:
    only = Sampling(temperature=1.0, top_k=1)
    proposal = drafter()[0].propose_tree(context(only, None), 2, 1)
    ids: Any = proposal.tokens.tolist()
    assert len(ids) == 3
    assert 0 <= ids[2] < WIDTH


@pytest.mark.parametrize(("depth", "at"), [(2, 2), (2, -1), (0, 0)])
def test_a_branch_is_on_the_chain(depth: int, at: int) -> None:
    with pytest.raises(ValueError, match=f"a branch at {at} of a chain of {depth}"):
        drafter()[0].propose_tree(context(GREEDY, None), depth, at)


@pytest.mark.parametrize(
    ("first", "second", "nodes", "tokens", "parents"),
    [
        ([1, 2, 3], [1, 5, 6], 9, [1, 2, 3, 5, 6], (-1, 0, 1, 0, 3)),
        ([1, 2], [3, 4], 9, [1, 2, 3, 4], (-1, 0, -1, 2)),
        ([1, 2, 3], [1, 2, 7], 9, [1, 2, 3, 7], (-1, 0, 1, 1)),
        ([1, 2, 3], [1, 5, 6], 4, [1, 2, 3, 5], (-1, 0, 1, 0)),
        ([1, 2, 3], [1, 5, 6], 3, [1, 2, 3], None),
        ([1, 2, 3], [1, 5, 6], 2, [1, 2], None),
        ([1, 2, 3], [1, 2], 9, [1, 2, 3], None),
        ([1, 2], [1, 2, 3], 9, [1, 2], None),
        ([1, 2], [], 9, [1, 2], None),
        ([1], [2], 9, [1, 2], (-1, -1)),
    ],
)
def test_two_continuations(
    first: list[int],
    second: list[int],
    nodes: int,
    tokens: list[int],
    parents: tuple[int, ...] | None,
) -> None:
    proposal = branched(first, second, nodes)
    assert proposal.tokens.tolist() == tokens
    assert proposal.tokens.dtype == mx.uint32
    assert proposal.parents == parents


chains = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(chains, chains, st.integers(1, 32))
def test_both_continuations_are_branches_as_far_as_there_is_room(
    first: list[int], second: list[int], nodes: int
) -> None:
    proposal = branched(first, second, nodes)
    ids: Any = proposal.tokens.tolist()
    parents = proposal.parents or tuple(range(-1, len(ids) - 1))
    tree = Tree(proposal.tokens, parents)
    assert len(ids) <= nodes
    assert ids[: len(first)] == first[:nodes]
    texts = [[ids[i] for i in np.flatnonzero(sees)] for sees in tree.sees]
    assert first[:nodes] in texts
    assert len({tuple(text) for text in texts}) == len(texts), "no branch twice"
    if proposal.parents is not None:
        assert second[: len(texts[-1])] == texts[-1]
        assert len(ids) == nodes or texts[-1] == second
