"""Rounds with trees, chains and single rows write what single rows write."""

from __future__ import annotations

import random
from functools import cache
from itertools import count
from typing import Any

import mlx.core as mx
import pytest
from replies import prompt_tokens

from macspec import Sampling
from macspec.assets import prompts
from macspec.control import RecentAcceptance
from macspec.drafters import ChainDrafter, Context, DraftModel, Proposal
from macspec.models import Pair
from macspec.models.cached import CachedModel, TreePass
from macspec.noise import Noise
from macspec.verification import Rule, Tree, follow, rule_named

TOKENS = 12
SEED = 21
SAMPLINGS = (
    Sampling(temperature=0),
    Sampling(temperature=0.7, top_p=0.95),
    Sampling(temperature=1.0),
    Sampling(temperature=0.8, repetition_penalty=1.3, frequency_penalty=0.2, penalty_context=9),
)


@cache
def target_of(pair: Pair) -> tuple[CachedModel, TreePass]:
    target = CachedModel(pair.target.module, pair.vocabulary)
    return target, TreePass(target)


class Loop:
    """The rounds of a reply, without a session around them.

    Args:
        pair: the models.
        prompt: where to begin.
        sampling: how to draw.
        rule: the rule for chains, and whose noise the draft model gets.
    """

    def __init__(self, pair: Pair, prompt: list[int], sampling: Sampling, rule: Rule) -> None:
        assert pair.draft is not None
        self.width = pair.vocabulary
        self.sampling = sampling
        self.rule = rule
        self.text = list(prompt)
        self.target, self.trees = target_of(pair)
        self.target.rollback(0)
        draft = CachedModel(pair.draft.module, pair.vocabulary)
        self.draft = ChainDrafter(DraftModel(draft, pair.draft.context), RecentAcceptance())
        self.passes = count()

    def noise(self, depth: int) -> Noise | None:
        if self.sampling.greedy:
            return None
        return Noise(SEED, next(self.passes), len(self.text), depth + 1, self.width)

    def context(self, noise: Noise | None) -> Context:
        drawn = None if noise is None else self.rule.draft_noise(noise)
        return Context(self.text, self.sampling, drawn, False, mx.async_eval)

    def chain(self, depth: int) -> int:
        """A round of the draft model's chain, a plain one at depth 0; how many were accepted."""
        noise, tokens = self.noise(depth), mx.array([], mx.uint32)
        if depth:
            proposal = self.draft.propose(self.context(noise), depth)
            assert proposal is not None
            tokens = proposal.tokens
        unread = mx.concatenate([self.target.unread(self.text), tokens])
        logits = self.target.logits(unread, depth + 1)
        scores = self.sampling.scores(
            logits, self.sampling.recent(self.text, tokens if depth else None, depth + 1)
        )
        verdict = self.rule.accept(scores, tokens, None, noise)
        accepted, drafted = int(verdict.accepted.item()), self.listed(tokens)[:]
        self.target.rollback(len(self.text) + accepted)
        self.draft.rollback(len(self.text) + accepted)
        self.text += [*drafted[:accepted], int(verdict.token.item())]
        return accepted

    def branches(self, depth: int, at: int) -> list[int]:
        """A round of the draft model's tree; the accepted nodes."""
        noise = self.noise(depth)
        return self.tree(self.draft.propose_tree(self.context(noise), depth, at), noise)

    def tree(self, proposal: Proposal, noise: Noise | None) -> list[int]:
        """A round of any tree; the accepted nodes."""
        assert proposal.parents is not None
        tree = Tree(proposal.tokens, proposal.parents)
        logits = self.trees.logits(self.target.unread(self.text), tree)
        recent = None
        if self.sampling.penalised:
            recent = tree.recent(self.text, self.sampling.penalty_context)
        verdict = follow(self.sampling.scores(logits, recent), tree, noise)
        path = self.listed(verdict.path)[: int(verdict.accepted.item())]
        tokens = self.listed(tree.tokens)
        self.trees.keep(path)
        main = [node for place, node in enumerate(path) if node == place]
        self.draft.rollback(len(self.text) + len(main))
        self.text += [*(tokens[node] for node in path), int(verdict.token.item())]
        assert self.target.length == len(self.text) - 1
        return path

    @staticmethod
    def listed(tokens: mx.array) -> list[int]:
        ids: Any = tokens.tolist()
        return list(ids)


@cache
def prompt_of(pair: Pair) -> list[int]:
    return prompt_tokens(pair, prompts()[5])


@cache
def plain(pair: Pair, sampling: Sampling) -> list[int]:
    """What rounds of one row write."""
    prompt = prompt_of(pair)
    loop = Loop(pair, prompt, sampling, rule_named("keyed"))
    while len(loop.text) < len(prompt) + TOKENS:
        loop.chain(0)
    return loop.text[len(prompt) :]


@pytest.mark.parametrize(
    ("number", "rule"), [(0, "keyed"), (1, "keyed"), (2, "match"), (2, "keyed"), (3, "keyed")]
)
def test_trees_of_the_draft_model_write_the_plain_text(small: Pair, number: int, rule: str) -> None:
    sampling, dice = SAMPLINGS[number], random.Random(number)
    prompt, expected = prompt_of(small), plain(small, sampling)
    loop = Loop(small, prompt, sampling, rule_named(rule))
    while (written := loop.text[len(prompt) :])[:TOKENS] != expected:
        assert written == expected[: len(written)]
        depth = dice.randint(1, 4)
        if dice.random() < 0.2:
            loop.chain(depth)
        else:
            loop.branches(depth, dice.randrange(depth))


def any_tree(dice: random.Random, truth: list[int], width: int) -> Proposal:
    """A tree in which the text to come is hidden behind a first node that is wrong."""
    edges = [-1, -1]
    tokens = [(truth[0] + 1) % width, truth[0]]
    right = [1]
    for node in range(2, dice.randint(2, 10)):
        if len(right) < len(truth) and dice.random() < 0.5:
            edges.append(right[-1])
            tokens.append(truth[len(right)])
            right.append(node)
        else:
            edges.append(dice.randrange(-1, node))
            tokens.append(dice.randrange(width))
    return Proposal(mx.array(tokens, mx.uint32), parents=tuple(edges))


@pytest.mark.parametrize("number", range(len(SAMPLINGS)))
def test_any_trees_write_the_plain_text(small: Pair, number: int) -> None:
    sampling, dice = SAMPLINGS[number], random.Random(number)
    prompt, expected = prompt_of(small), plain(small, sampling)
    loop = Loop(small, prompt, sampling, rule_named("keyed"))
    while (written := loop.text[len(prompt) :])[:TOKENS] != expected:
        assert written == expected[: len(written)]
        proposal = any_tree(dice, expected[len(written) :], loop.width)
        assert proposal.parents is not None
        depth = Tree(proposal.tokens, proposal.parents).depth
        path = loop.tree(proposal, loop.noise(depth))
        assert path[0] > 0, "the branch had to be moved"


def test_two_continuations_as_one_tree(small: Pair) -> None:
    sampling = SAMPLINGS[2]
    prompt, expected = prompt_of(small), plain(small, sampling)
    loop = Loop(small, prompt, sampling, rule_named("match"))
    wrong = [*expected[:2], (expected[2] + 1) % loop.width, 5, 6]
    tokens = mx.array([*wrong, *expected[2:6]], mx.uint32)
    proposal = Proposal(tokens, parents=(-1, 0, 1, 2, 3, 1, 5, 6, 7))
    assert loop.tree(proposal, loop.noise(6)) == [0, 1, 5, 6, 7, 8]
    assert loop.text[len(prompt) :] == expected[:7]
