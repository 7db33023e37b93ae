"""The draft model: chains, branches, and what its proposals depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from tinymodels import tiny

from macspec.control import RecentAcceptance
from macspec.drafters import ChainDrafter, Context, DraftModel
from macspec.drafters.drafter import Dispatch
from macspec.models.cached import CachedModel
from macspec.noise import DRAFT, TARGET, Noise
from macspec.sampling import Sampling
from macspec.verification import Tree

WIDTH = 12
TOKENS = [3, 1, 4, 1, 5]
PIPELINES = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.6, top_p=0.8, top_k=7),
    Sampling(temperature=0.9, repetition_penalty=1.5, frequency_penalty=0.5, penalty_context=4),
)


class LastToken:
    """Stands for a cached model whose logits depend on the last token; keeps what it was given."""

    def __init__(self) -> None:
        self.table = mx.array(np.random.default_rng(1).normal(size=(WIDTH, WIDTH)), mx.float32)
        self.read: list[int] = []
        self.passes: list[int] = []

    @property
    def length(self) -> int:
        return len(self.read)

    def unread(self, tokens: list[int]) -> mx.array:
        return mx.array(tokens[len(self.read) :], mx.uint32)

    def logits(self, tokens: mx.array, rows: int, _: Dispatch | None = None) -> mx.array:
        ids: list[int] = tokens.tolist()
        self.read += ids
        self.passes.append(len(ids))
        return self.table[tokens[-rows:]]

    def rollback(self, length: int) -> None:
        del self.read[length:]


def drafter() -> tuple[ChainDrafter, LastToken]:
    model = LastToken()
    return ChainDrafter(DraftModel(cast(Any, model), context=20), RecentAcceptance()), model


def context(sampling: Sampling, noise: mx.array | None, keeps_q: bool = True) -> Context:
    drawn = None if noise is None else lambda: noise
    return Context(TOKENS, sampling, drawn, keeps_q, dispatch=mx.async_eval)


def rows_of(model: LastToken, sampling: Sampling, drafted: list[int]) -> list[mx.array]:
    """What each drafted token must have been drawn from, one single step after another."""
    rows = []
    for i in range(len(drafted)):
        before = TOKENS + drafted[:i]
        recent = sampling.recent(before, None, 1)
        rows.append(sampling.scores(model.table[mx.array([before[-1]])], recent)[0])
    return rows


@pytest.mark.parametrize("sampling", PIPELINES)
def test_tokens_are_drawn_from_the_rows_that_are_handed_over(sampling: Sampling) -> None:
    chain, model = drafter()
    noise = Noise(2, draw=0, position=len(TOKENS), rows=5, width=WIDTH).gumbel(DRAFT)
    proposal = chain.propose(context(sampling, noise), 4)
    assert proposal is not None
    assert proposal.log_q is not None
    drafted: list[int] = proposal.tokens.tolist()
    assert len(set(drafted)) > 1
    for step, row in enumerate(rows_of(model, sampling, drafted)):
        assert mx.allclose(mx.softmax(proposal.log_q[step]), mx.exp(row), atol=1e-6)
        assert drafted[step] == mx.argmax(row + noise[step]).item()


@pytest.mark.parametrize("sampling", PIPELINES)
def test_without_noise_it_takes_its_best_tokens_and_claims_no_distribution(
    sampling: Sampling,
) -> None:
    chain, model = drafter()
    proposal = chain.propose(context(sampling, None), 4)
    assert proposal is not None
    assert proposal.log_q is None
    drafted: list[int] = proposal.tokens.tolist()
    best = [mx.argmax(row).item() for row in rows_of(model, sampling, drafted)]
    assert drafted == best


def test_rows_are_kept_only_for_a_rule_that_needs_them() -> None:
    noise = Noise(2, 0, len(TOKENS), 3, WIDTH).gumbel(DRAFT)
    drawn = [
        drafter()[0].propose(context(PIPELINES[0], noise, keeps_q), 2) for keeps_q in (True, False)
    ]
    kept, dropped = drawn
    assert kept is not None
    assert dropped is not None
    assert kept.log_q is not None
    assert dropped.log_q is None
    assert mx.array_equal(kept.tokens, dropped.tokens)


def test_the_last_drafted_token_is_not_read() -> None:
    chain, model = drafter()
    proposal = chain.propose(context(PIPELINES[0], None), 4)
    assert proposal is not None
    drafted: list[int] = proposal.tokens.tolist()
    assert model.read == TOKENS + drafted[:3]
    assert model.passes == [len(TOKENS), 1, 1, 1]
    chain.rollback(len(TOKENS) + 1)
    assert model.read == [*TOKENS, drafted[0]]


def test_the_device_starts_before_the_first_step_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny("llama")
    model = CachedModel(module, WIDTH)
    begun: list[mx.array] = []
    built: list[int] = []
    layer = type(module.layers[-1])
    original = layer.__call__

    def counting(self: Any, *args: Any, **named: Any) -> Any:
        built.append(len(begun))
        return original(self, *args, **named)

    monkeypatch.setattr(layer, "__call__", counting)
    model.logits(mx.array(TOKENS, mx.uint32), 1, begun.append)
    for _ in range(2):
        built.clear()
        begun.clear()
        given = Context([*TOKENS, 7], Sampling(), None, False, dispatch=begun.append)
        ChainDrafter(DraftModel(model, context=20), RecentAcceptance()).propose(given, 2)
        first, second = built[: len(module.layers)], built[len(module.layers) :]
        assert first[0] == 0 < first[1]
        assert second[0] == second[-1] == len(begun) - 1, "later steps are behind the first one"
        model.rollback(len(TOKENS))


def test_noise_is_computed_once_and_behind_the_first_step() -> None:
    model, begun, asked = CachedModel(tiny("llama"), WIDTH), [], []
    noise = Noise(2, 0, len(TOKENS), 3, WIDTH).gumbel(DRAFT)

    def computed() -> mx.array:
        asked.append(len(begun))
        return noise

    given = Context(TOKENS, Sampling(temperature=1), computed, True, dispatch=begun.append)
    ChainDrafter(DraftModel(model, context=20), RecentAcceptance()).propose(given, 3)
    (before,) = asked
    assert before > 0


def test_room_ends_with_the_draft_models_context() -> None:
    chain, _ = drafter()
    lengths = (1, 19, 20, 21, 30)
    assert [chain.offer([5] * length).room for length in lengths] == [20, 2, 1, 0, 0]


def play(draft: ChainDrafter, text: list[int], committed: list[int]) -> None:
    """A round of one drafted token after a text, which it extends; the token is accepted where two
    were committed."""
    draft.rollback(len(text) - 1)
    draft.propose(Context(text, Sampling(), None, False, dispatch=mx.async_eval), 1)
    draft.observe(committed, 1, len(committed) - 1)
    text += committed


def test_another_text_is_no_recent_one() -> None:
    draft, _ = drafter()
    text, fresh = list(TOKENS), draft.offer(TOKENS).bucket
    for _ in range(30):
        play(draft, text, [7])
    assert draft.offer(text).bucket < fresh
    draft.rollback(1)
    assert draft.offer(TOKENS).bucket == fresh


def best_of(text: list[int]) -> Callable[[mx.array, int], float]:
    """Whether the best token by some logits is that of the text, as a chance."""
    return lambda logits, at: float(mx.argmax(logits).item() == text[at])


def test_what_was_committed_without_it_is_drafted_afterwards() -> None:
    draft, model = drafter()
    text = list(TOKENS)
    for number in range(12):
        best = int(mx.argmax(model.table[text[-1]]).item())
        text.append(best if number not in (3, 4) else (best + 1) % WIDTH)
    model.read, before = text[: len(TOKENS) - 1], draft.offer(text).bucket
    rounds = list(draft.study(text, len(TOKENS), best_of(text)))
    # Three tokens right and one wrong, one wrong, and the rest.
    assert [it[1:] for it in rounds] == [(8, 3), (8, 0), (7, 7)]
    assert model.read == text[: len(model.read)], "nothing but the text is left in its cache"
    assert draft.offer(text).bucket > before
    assert list(draft.study(text, len(text), best_of(text))) == []


def test_what_another_drafter_was_judged_by_is_not_counted_again() -> None:
    recent = RecentAcceptance()
    drafters = [ChainDrafter(DraftModel(cast(Any, LastToken()), 20), recent) for _ in range(2)]
    text = list(TOKENS)
    for _ in range(3):
        play(drafters[0], text, [7])
    before = recent.share(len(text))
    list(drafters[1].study(text, len(TOKENS), best_of(text)))
    assert recent.share(len(text)) == before


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
