"""Proposals with a branch: the second best token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_draft_model import PIPELINES, TOKENS, WIDTH, context, drafter, rows_of

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
