"""One pipeline: the distribution is mlx-lm's, row by row, whatever is drafted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from exact import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm import sample_utils
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from macspec.errors import BadOptionError
from macspec.noise import MAX_SEED
from macspec.sampling import Sampling, keep_top_k, keep_top_p

CLOSE = 1e-5
WIDTH = 13

# Few distinct values, so that ties are common; none so near that rounding decides whether they are
# equal; and a token that cannot be.
logit = st.one_of(
    st.integers(-20_000, 20_000).map(lambda n: n / 1000),
    st.integers(-4, 4).map(lambda n: n / 2),
    st.just(-np.inf),
)
row = st.lists(logit, min_size=WIDTH, max_size=WIDTH).filter(lambda x: max(x) > -np.inf)
ids = st.integers(0, WIDTH - 1)
truncations = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.1, 0.7, 1.0, 1.5]),
        "top_p": st.sampled_from([0.05, 0.5, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.5]),
        "top_k": st.sampled_from([0, 1, 3, 7]),
    }
)
penalties = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from([0.8, 1.0, 1.3]),
        "presence_penalty": st.sampled_from([-0.5, 0.0, 0.7]),
        "frequency_penalty": st.sampled_from([0.0, 0.4]),
        "penalty_context": st.sampled_from([1, 3, 20]),
        "logit_bias": st.dictionaries(ids, st.floats(-5, 5, width=16), max_size=3).map(
            lambda bias: tuple(bias.items())
        ),
    }
)
many = settings(deadline=None, max_examples=150)


def log_p(sampling: Sampling, logits: Any, recent: mx.array | None = None) -> Array:
    """What a draw is made from, [rows, V]."""
    return np.array(sampling.scores(mx.array(logits), recent)).astype(np.float64)


def adjusted_by_mlx_lm(sampling: Sampling, logits: mx.array, tokens: Sequence[int]) -> mx.array:
    """One row [1, V] after mlx-lm's own bias and penalties."""
    n = sampling.penalty_context
    for process in make_logits_processors(
        dict(sampling.logit_bias),
        sampling.repetition_penalty, n,
        sampling.presence_penalty, n,
        sampling.frequency_penalty, n,
    ):  # fmt: skip
        logits = process(mx.array(list(tokens), mx.uint32), logits)
    return logits


def mlx_lm(sampling: Sampling, logits: Any, tokens: Sequence[int] = ()) -> Array:
    """The log-probabilities [V] that mlx-lm's own sampler draws from after ``tokens``."""
    drawn_from: list[mx.array] = []

    def categorical(log_p: mx.array, temperature: float) -> mx.array:
        log_p = log_p * (1 / temperature)
        drawn_from.append(log_p - mx.logsumexp(log_p, axis=-1, keepdims=True))
        return mx.array([0])

    adjusted = adjusted_by_mlx_lm(sampling, mx.array(logits).astype(mx.float32)[None], tokens)
    sampler = make_sampler(
        sampling.temperature, sampling.top_p, sampling.min_p, top_k=sampling.top_k
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_utils, "categorical_sampling", categorical)
        sampler(adjusted - mx.logsumexp(adjusted, keepdims=True))
    return np.array(drawn_from[0])[0].astype(np.float64)


def assert_same(mine: Array, theirs: Array, sampling: Sampling) -> None:
    """Equal, but for which of equals top-k keeps: there mlx-lm's choice is arbitrary."""
    p, their_p = np.exp(mine), np.exp(theirs)
    assert p.sum() == pytest.approx(1, abs=CLOSE)
    assert np.allclose(np.sort(p), np.sort(their_p), rtol=0, atol=CLOSE)
    kept, they_kept = mine > -np.inf, theirs > -np.inf
    assert kept.sum() == they_kept.sum()
    if sampling.top_k == 0:
        assert np.array_equal(kept, they_kept)
        assert np.allclose(p, their_p, rtol=0, atol=CLOSE)


@many
@given(row, truncations)
def test_truncation_is_mlx_lms(logits: list[float], options: dict[str, Any]) -> None:
    sampling = Sampling(**options)
    mine = log_p(sampling, [logits])[0]
    assert_same(mine, mlx_lm(sampling, logits), sampling)


@many
@given(row, penalties, st.lists(ids, min_size=1, max_size=30))
def test_penalties_and_bias_are_mlx_lms(
    logits: list[float], options: dict[str, Any], tokens: list[int]
) -> None:
    sampling = Sampling(temperature=1.0, **options)
    mine = log_p(sampling, [logits], sampling.recent(tokens, None, 1))[0]
    assert_same(mine, mlx_lm(sampling, logits, tokens), sampling)


@many
@given(
    st.lists(row, min_size=1, max_size=5), truncations, penalties,
    st.lists(ids, min_size=1, max_size=12), st.lists(ids, min_size=6, max_size=6),
)  # fmt: skip
def test_a_pass_of_several_rows_is_as_many_single_steps(
    rows: list[list[float]],
    truncation: dict[str, Any],
    penalty: dict[str, Any],
    tokens: list[int],
    drafted: list[int],
) -> None:
    sampling = Sampling(**truncation, **penalty)
    following = drafted[: len(rows) - 1]
    recent = sampling.recent(tokens, mx.array(following, mx.uint32), len(rows))
    together = log_p(sampling, rows, recent)
    for i, logits in enumerate(rows):
        before = tokens + following[:i]
        alone = log_p(sampling, [logits], sampling.recent(before, None, 1))[0]
        lazy = sampling.recent(tokens, mx.array(following[:i], mx.uint32), 1)
        assert np.array_equal(together[i], alone)
        assert np.array_equal(log_p(sampling, [logits], lazy)[0], alone)
        assert_same(alone, mlx_lm(sampling, logits, before), sampling)


def test_a_row_may_look_back_beyond_what_follows() -> None:
    sampling = Sampling(presence_penalty=1, penalty_context=3)
    recent = sampling.recent([5, 6], mx.array([7, 8, 9], mx.uint32), 3)
    assert recent is not None
    assert recent.tolist() == [[5, 6, 7], [6, 7, 8], [7, 8, 9]]
    short = sampling.recent([5], mx.array([7], mx.uint32), 2)
    assert short is not None
    assert short.tolist() == [[-1, 5], [5, 7]]
    assert Sampling().recent([5, 6], None, 1) is None


@given(row)
@many
def test_half_precision_logits_are_computed_with_in_float32(logits: list[float]) -> None:
    half = mx.array(logits, mx.bfloat16)
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5)
    scores = sampling.scores(half[None])
    assert scores.dtype == mx.float32
    assert_same(np.array(scores)[0], mlx_lm(sampling, half.astype(mx.float32)), sampling)


@many
@given(row, penalties, st.lists(ids, min_size=1, max_size=9), truncations)
def test_greedy_scores_are_the_adjusted_logits(
    logits: list[float], penalty: dict[str, Any], tokens: list[int], truncation: dict[str, Any]
) -> None:
    sampling = Sampling(**{**truncation, **penalty, "temperature": 0})
    assert sampling.greedy
    mine = sampling.scores(mx.array([logits], mx.float32), sampling.recent(tokens, None, 1))
    theirs = adjusted_by_mlx_lm(sampling, mx.array([logits], mx.float32), tokens)
    assert np.allclose(np.array(mine), np.array(theirs), atol=CLOSE)
    ours, best = (int(mx.argmax(scores).item()) for scores in (mine, theirs))
    assert ours == best or abs(theirs[0, ours] - theirs[0, best]).item() < CLOSE


@many
@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(1, 39))
def test_of_equals_the_lowest_ids_are_among_the_top_k(values: list[int], top_k: int) -> None:
    top_k = min(top_k, len(values) - 1)
    log_p = np.array(values, np.float32)
    order = np.argsort(-log_p, kind="stable")[:top_k]
    kept = np.array(keep_top_k(mx.array(log_p)[None], top_k))[0] > -np.inf
    assert set(np.flatnonzero(kept)) == set(order)


@many
@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.floats(1e-6, 0.999))
def test_top_p_keeps_a_token_for_the_mass_above_it_and_its_equals(
    weights: list[int], top_p: float
) -> None:
    p = np.array(weights) / sum(weights)
    kept = np.array(keep_top_p(mx.log(mx.array(p, mx.float32))[None], top_p))[0] > -np.inf
    above = np.array([p[p > x].sum() for x in p])
    clear = np.abs(above - top_p) > CLOSE
    # Equals stay together: the first of them in rank order decides, with only better ones above.
    assert np.array_equal(kept[clear], (above < top_p)[clear])


@pytest.mark.parametrize("width", [4096, 151_936])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_at_a_models_width_top_p_keeps_what_mlx_lm_keeps(top_p: float, width: int) -> None:
    sampling = Sampling(top_p=top_p)
    for seed in range(2):
        logits = np.random.default_rng(seed).normal(scale=4, size=width).astype(np.float32)
        mine = log_p(sampling, logits[None])[0]
        assert np.array_equal(mine > -np.inf, mlx_lm(sampling, logits) > -np.inf)
        p = np.exp(logits.astype(np.float64))
        ranked = np.sort(p / p.sum())[::-1]
        count = (mine > -np.inf).sum()
        # 151,936 addends in float32: the mass that was kept is right to about three digits.
        assert ranked[:count].sum() > top_p - 1e-3
        assert ranked[: count - 1].sum() < top_p + 1e-3


@many
@given(st.lists(row, min_size=1, max_size=3), truncations, st.integers(1, WIDTH))
def test_a_draft_keeps_the_best_ranked_of_what_is_kept(
    rows: list[list[float]], options: dict[str, Any], ranked: int
) -> None:
    sampling = Sampling(**{**options, "top_p": 0.9})
    logits = mx.array(rows)
    few, all_of_them = (np.array(sampling.weights(logits, None, it)) for it in (ranked, None))
    p = np.array(mx.softmax(logits, axis=-1))
    among = p >= np.sort(p, axis=-1)[:, [-ranked]]
    assert np.array_equal(few > -np.inf, among & (all_of_them > -np.inf))
    assert np.array_equal(few[few > -np.inf], all_of_them[few > -np.inf])


@pytest.mark.parametrize("top_k", [5, 6, 10**9, 2**70])
def test_top_k_of_the_whole_vocabulary_is_off(top_k: int) -> None:
    logits = [[0.5, 1.0, -1.0, 0.5, 2.0]]
    whole = log_p(Sampling(), logits)
    assert np.array_equal(log_p(Sampling(top_k=top_k), logits), whole)
    assert (whole > -np.inf).all()


@pytest.mark.parametrize(
    "options",
    [
        {"top_p": 1e-300}, {"min_p": 1.0}, {"min_p": 1e-300}, {"temperature": 1e-6},
        {"temperature": 100}, {"repetition_penalty": 0.01}, {"repetition_penalty": 100},
        {"presence_penalty": 1e9}, {"presence_penalty": -1e9}, {"frequency_penalty": 1e9},
        {"logit_bias": ((1, 1e9),)}, {"logit_bias": ((1, -1e9), (4, 1e9))},
        {"penalty_context": 2**40, "frequency_penalty": 1}, {"top_k": 1},
    ],
)  # fmt: skip
def test_allowed_extremes_still_give_a_distribution(options: dict[str, Any]) -> None:
    sampling = Sampling(**options)
    logits = np.random.default_rng(1).normal(scale=30, size=(3, WIDTH))
    recent = sampling.recent([1, 2, 2, 5], mx.array([3, 1], mx.uint32), 3)
    p = np.exp(log_p(sampling, logits.astype(np.float32), recent))
    assert p.sum(axis=-1) == pytest.approx(1, abs=CLOSE)


def test_the_smallest_top_p_keeps_the_most_likely_token() -> None:
    logits = np.random.default_rng(4).normal(size=(50, 7)).astype(np.float32)
    kept = log_p(Sampling(top_p=1e-300), logits) > -np.inf
    assert np.array_equal(kept, logits == logits.max(axis=-1, keepdims=True))


def test_ids_without_a_logit_are_never_drawn() -> None:
    """A narrower model's rows are padded with -inf; its bias and penalties change nothing there."""
    logits = np.full((2, 9), -np.inf, np.float32)
    logits[:, :6] = np.random.default_rng(2).normal(size=(2, 6))
    sampling = Sampling(
        top_p=0.99, top_k=8, repetition_penalty=0.5, frequency_penalty=-1,
        presence_penalty=-1, logit_bias=((7, 50.0), (99, 5.0)),
    )  # fmt: skip
    scores = log_p(sampling, logits, sampling.recent([7, 8, 1], None, 1))
    assert (scores[:, 6:] == -np.inf).all()
    greedy = Sampling(temperature=0, repetition_penalty=0.5, logit_bias=((7, 50.0),))
    assert log_p(greedy, logits, greedy.recent([7, 8, 1], None, 1)).argmax() < 6


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -0.1}, "temperature is -0.1; it must be 0, or between 1e-6 and 100"),
    ({"temperature": 1e-9}, "temperature"),
    ({"temperature": float("nan")}, "temperature is nan"),
    ({"temperature": float("inf")}, "temperature is inf"),
    ({"temperature": "warm"}, "temperature is warm"),
    ({"top_k": -1}, "top-k is -1; it must be 0 (off) or a positive count"),
    ({"top_k": 2.5}, "top-k is 2.5"),
    ({"top_p": 0}, "top-p is 0; it must be above 0 and at most 1"),
    ({"top_p": 1.01}, "top-p is 1.01"),
    ({"min_p": -0.1}, "min-p is -0.1; it must be between 0 and 1"),
    ({"min_p": 2}, "min-p is 2"),
    ({"repetition_penalty": 0}, "repetition-penalty is 0"),
    ({"presence_penalty": float("inf")}, "presence-penalty is inf"),
    ({"frequency_penalty": 1e39}, "frequency-penalty is 1e+39"),
    ({"penalty_context": 0}, "penalty-context is 0; it must be a count of at least 1"),
    ({"penalty_context": 1.5}, "penalty-context is 1.5"),
    ({"logit_bias": ((-1, 0.5),)}, "logit-bias token is -1; it must be an id of 0 or more"),
    ({"logit_bias": ((3, float("nan")),)}, "logit-bias for token 3 is nan"),
    ({"seed": -1}, "seed is -1; it must be between 0 and 2^64 - 1"),
    ({"seed": MAX_SEED + 1}, "seed is 18446744073709551616"),
    ({"seed": 10**400}, "seed is 1000"),
    ({"seed": 1.5}, "seed is 1.5"),
    ({"seed": True}, "seed is True"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_value_out_of_range_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOptionError) as caught:
        Sampling(**options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert "must be" in str(caught.value)
