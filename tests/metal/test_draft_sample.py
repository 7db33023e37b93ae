"""One draft step on the device gives the token and the distribution of the portable step."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import references
from harness import installed
from passes import (
    NEAR,
    TYPES,
    Array,
    best,
    distribution,
    gumbel,
    logits_of,
    sampling_of,
    through_every_layer,
    verdict,
    wide,
)

from macspec.metal import accept
from macspec.noise import DRAFT, TARGET, Noise
from macspec.sampling import Sampling

LARGE = 151_936
WIDTHS = (7, 8, 61, 1_009)


def assert_right(
    sampling: Sampling, logits: mx.array, noise: Noise, step: int, *, keeps_q: bool
) -> bool:
    """Whether token and distribution are the portable ones; if not, rounding explains it."""
    arguments = (sampling, logits, noise, step)
    token, log_q = accept.draft_sample(*arguments, keeps_q=keeps_q)
    their_token, their_q = references.draft_sample(*arguments, keeps_q=keeps_q)
    assert (token.dtype, token.shape) == (mx.uint32, (1,))
    expected = distribution(sampling, wide(logits)[0])
    stream = DRAFT if keeps_q else TARGET
    drawn, lead = best(expected.log_p + gumbel(noise, stream, step, logits.shape[1]))
    same = token.item() == their_token.item()
    if not same or token.item() != drawn:
        assert expected.near or lead < NEAR
    if log_q is None or their_q is None:
        assert log_q is None
        assert their_q is None
        return same
    assert log_q.shape == logits.shape
    return same & same_distribution(log_q, their_q, expected.log_p, near=expected.near)


def same_distribution(mine: mx.array, theirs: mx.array, log_p: Array, *, near: bool) -> bool:
    found, portable = wide(mine)[0], wide(theirs)[0]
    same = np.array_equal(found > -np.inf, portable > -np.inf)
    if not near:
        kept = log_p > -np.inf
        assert np.array_equal(found > -np.inf, kept)
        assert np.allclose(np.exp(found), np.exp(log_p), rtol=0, atol=NEAR)
        assert np.allclose(found[kept], log_p[kept], rtol=0, atol=1e-4)
    return same


def steps(seed: int, count: int, widths: tuple[int, ...]) -> int:
    """How many of so many random steps end otherwise than the portable ones."""
    rng = np.random.default_rng(seed)
    differ = 0
    for number in range(count):
        width = widths[number % len(widths)]
        sampling = sampling_of(rng, width)
        noise = Noise(int(rng.integers(2**63)), number, int(rng.integers(9999)), 5, width)
        logits = mx.array(logits_of(rng, 1, width), mx.float32).astype(TYPES[number % 3])
        logits = logits[:, : width - number // 3 % 3]
        differ += not assert_right(
            sampling,
            logits,
            noise,
            number % 5,
            keeps_q=number % 4 > 0,
        )
    return differ


def test_steps_are_the_portable_ones() -> None:
    with installed(inspected=False):
        assert steps(1, 100, (8, 61)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_steps_are_the_portable_ones_many_times(seed: int) -> None:
    with installed(inspected=False):
        assert steps(seed + 2, 2000, WIDTHS) <= 2


@pytest.mark.parametrize("width", [7, 1_009])
def test_every_layer_passes(width: int) -> None:
    with through_every_layer() as ran:
        steps(width, 3, (width,))
    assert {one.kernel for one in ran} == {"accept_draw", "draft_sample"}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_layer_passes_many_times(width: int) -> None:
    with through_every_layer():
        steps(width, 20, (width,))


@pytest.mark.parametrize(
    ("dtype", "sampling"),
    [
        (mx.bfloat16, Sampling(temperature=0.7, top_p=0.9)),
        (mx.float16, Sampling(temperature=1.0)),
        (mx.float32, Sampling(temperature=0.8, top_k=50, min_p=0.01)),
    ],
)
def test_a_whole_vocabulary(dtype: mx.Dtype, sampling: Sampling) -> None:
    logits = mx.array(np.random.default_rng(3).normal(scale=3, size=(1, LARGE)), mx.float32)
    noise = Noise(11, 4, 900, 3, LARGE)
    with through_every_layer() as ran:
        assert_right(sampling, logits.astype(dtype), noise, 2, keeps_q=True)
    traffic = ran[0].outputs.report.traffic["logits"]
    assert traffic.most <= 3 + (12 if dtype == mx.float32 else 7)
    if sampling == Sampling(temperature=1.0):
        assert traffic.most == 3


def test_without_noise_it_is_the_most_likely_token() -> None:
    logits = mx.array([[0.0, 2, 5, 5, 1]])
    for sampling in (Sampling(temperature=0), Sampling(temperature=0.7, top_p=0.5)):
        with installed():
            token, log_q = accept.draft_sample(sampling, logits, None, 3, keeps_q=True)
        assert (token.item(), log_q) == (2, None)


@pytest.mark.parametrize("keeps_q", [True, False])
@pytest.mark.parametrize("bad", [[np.nan, 1, 2], [1, np.inf, 0], [-np.inf] * 3])
def test_from_a_broken_row_comes_a_token_that_exists(bad: list[float], keeps_q: bool) -> None:
    arguments = (Sampling(), mx.array([bad]), Noise(1, 2, 3, 2, 3), 1)
    with installed():
        token, log_q = accept.draft_sample(*arguments, keeps_q=keeps_q)
    their_token, their_q = references.draft_sample(*arguments, keeps_q=keeps_q)
    assert token.item() == their_token.item() == 0
    if keeps_q:
        assert log_q is not None
        assert their_q is not None
        assert np.isnan(np.array(log_q)).all()
        assert np.isnan(np.array(their_q)).all()
        # The pass that it is judged in is a broken one.
        with installed():
            sound = mx.zeros((2, 3))
            judged = accept.accept(Sampling(), sound, token, log_q, arguments[2])
        assert verdict(judged) == (accept.BROKEN, 0)


def chain(keeps_q: bool, table: mx.array, first: mx.array, noise: Noise) -> list[mx.array]:
    """Three steps of a model whose logits are a table's rows, and their judgement."""
    sampling = Sampling(temperature=0.9, top_k=20)
    tokens, kept = [first], []
    for step in range(3):
        token, log_q = accept.draft_sample(
            sampling, table[tokens[-1]], noise, step, keeps_q=keeps_q
        )
        tokens.append(token)
        kept += [] if log_q is None else [log_q]
    drafted = mx.concatenate(tokens[1:])
    log_q = mx.concatenate(kept) if kept else None
    verdict = accept.accept(sampling, table[mx.concatenate(tokens)], drafted, log_q, noise)
    return [drafted, verdict.accepted, verdict.token]


@pytest.mark.parametrize("keeps_q", [True, False])
def test_a_round_stays_on_the_device(keeps_q: bool) -> None:
    """Tracing fails where a value is read; a step is one launch and the judgement two."""
    table = mx.array(np.random.default_rng(4).normal(size=(61, 61)), mx.float32)
    records: list[dict[str, object]] = []
    noise = Noise(1, 0, 10, 4, 61)
    mx.export_function(
        records.append,
        lambda table, first: chain(keeps_q, table, first, noise),
        table,
        mx.array([5], mx.uint32),
    )
    assert sum(record.get("name") == "CustomKernel" for record in records) == 3 + 2


def test_a_draft_that_is_the_target_stands_whole() -> None:
    """Under the keyed rule both draw with the same noise; under block p = q keeps everything."""
    table = mx.array(np.random.default_rng(5).normal(size=(61, 61)), mx.float32)
    with installed(inspected=False):
        for keeps_q in (True, False):
            for position in range(30):
                noise = Noise(77, 1, position, 4, 61)
                _, accepted, _ = chain(keeps_q, table, mx.array([5], mx.uint32), noise)
                assert accepted.item() == 3
