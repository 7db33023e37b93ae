"""Ways in which the sampling kernels could be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np
from harness import Case, Mutant, Outputs, installed
from passes import NEAR, Pass, distribution, gumbel, one_pass, outcome, wide

from macspec.metal import accept
from macspec.noise import DRAFT, TARGET, Noise
from macspec.sampling import Sampling

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
CUT = Sampling(temperature=0.8, top_p=0.97, top_k=12)
NUCLEUS = Sampling(temperature=1.2, top_p=0.5)
BEST_TWO = Sampling(temperature=1.0, top_k=2)
WIDTH = 61
NO_TOKEN = 2**32 - 1

MUTANTS = (
    # What all of them do with a row.
    Mutant("sums read before they are written", f"numbers[me.group] = x;\n  {BARRIER}",
           "numbers[me.group] = x;", kernel="accept_measure"),
    Mutant("bests read before they are written", f"counts[me.group] = id;\n  }}\n  {BARRIER}",
           "counts[me.group] = id;\n  }", kernel="accept_draw"),
    Mutant("a bound's sums read before they are written",
           f"+ k] = m;\n      }}\n    }}\n    {BARRIER}", "+ k] = m;\n      }\n    }",
           kernel="accept_draw"),
    Mutant("the last of equals read before it is written", f"{BARRIER}\n  return me.counts[0];",
           "return me.counts[0];", kernel="accept_draw"),
    Mutant("counts of equals overwritten while others read",
           f"before += me.counts[group];\n  {BARRIER}", "before += me.counts[group];",
           kernel="accept_draw"),
    Mutant("NaN goes unseen", "if (!(x <= mine.score))", "if (x > mine.score)"),
    Mutant("one logit too many", "i < width; i += THREADS) {\n    const float x",
           "i <= width; i += THREADS) {\n    const float x"),
    Mutant("of equals the highest id", "simd_min(score == best ? id : ~0u)",
           "simd_max(score == best ? id : 0u)"),
    Mutant("as many as k are better", "number[k] += key > bounds[k]",
           "number[k] += key >= bounds[k]", kernel="accept_draw"),
    Mutant("mass above counts the id's own", "mass[k] += key > bounds[k]",
           "mass[k] += key >= bounds[k]", kernel="accept_draw"),
    Mutant("top-p of what the best one has", "enough = top_p * simd_broadcast(m, ushort(0))",
           "enough = top_p", kernel="accept_draw"),
    Mutant("room for one more of the equals", "room = top_k - above_high;",
           "room = top_k - above_high + 1;", kernel="accept_draw"),
    Mutant("-0 and 0 are no equals", "x == 0 ? 0u : as_type<uint>(x)", "as_type<uint>(x)",
           kernel="accept_draw"),
    Mutant("no min-p", "float(x) - row.top >= row.floor", "true", kernel="accept_measure"),
    Mutant("every row the same noise", "place[2] + row", "place[2]", kernel="accept_draw"),
    Mutant("the target's noise changes with the pass", "stream == TARGET ? 0u : place[3]",
           "place[3]", kernel="accept_draw"),
    # The walk.
    Mutant("a node's own row judges it", "drawn[up]", "drawn[lane + 1]", kernel="accept_walk"),
    Mutant("a token stands on a refused one", "here && (way & refused) == 0 ? down",
           "here && (1u << lane & refused) == 0 ? down", kernel="accept_walk"),
    Mutant("the path's end is left open", "if (lane >= longest) path[lane] = -1;", "",
           kernel="accept_walk"),
    Mutant("the token before the correction", "longest > 0 ? last + 1 : 0", "last",
           kernel="accept_walk"),
    Mutant("the 33rd row may be broken", " || drawn[rows - 1] == ~0u", "", kernel="accept_walk"),
    # Block.
    Mutant("ratios read before they are written", f"}}\n{BARRIER}\n\nfloat walk", "}\n\nfloat walk",
           kernel="accept_block"),
    Mutant("only the product is capped", "highest = max(highest, walk)",
           "highest = max(0.0f, walk)", kernel="accept_block"),
    Mutant("h forgets 1 - b", "r + (1 - after)", "r", kernel="accept_block"),
    Mutant("residual without b", "fma(b, p, -q)", "p - q", kernel="accept_block"),
    Mutant("the first token to be refused ends it", "i > 0 && kept == 0", "i > 0",
           kernel="accept_block"),
    Mutant("one uniform for all", "row_key(place, ACCEPT, i - 1)", "row_key(place, ACCEPT, 0)",
           kernel="accept_block"),
    Mutant("a narrow draft is read beyond its width", "id < draft_width ?", "true ?",
           kernel="accept_block"),
    Mutant("a residual of zeros draws nothing", "if (best.score == -INFINITY) best",
           "if (kept == depth) best", kernel="accept_block"),
    Mutant("the bonus row may be broken",
           "isnan(b) || (me.lane <= depth && isnan(scales[2 * me.lane + 1])) ||\n"
           "    isnan(scales[2 * depth + 1])", "isnan(b)", kernel="accept_block"),
    Mutant("b of 0 / 0 is nothing", "isnan(b) || ", "", kernel="accept_block"),
    # A draft step.
    Mutant("a sum that the compiler may fuse", "fma(float(x) - row.top, row.inverse, -log_z)",
           "(float(x) - row.top) * row.inverse - log_z", kernel="draft_sample"),
    Mutant("drawn with the target's noise", "row_key(place, DRAFT, 0)", "row_key(place, TARGET, 0)",
           kernel="draft_sample"),
)  # fmt: skip


def cases() -> list[Case]:
    """Small launches of every kernel, with what they must give."""
    return [*_draws(), *_walks(), *_measures(), *_blocks(), *_samples()]


def _logits() -> mx.array:
    """[5, WIDTH] with many equals, both zeros among them, and a row of nothing else."""
    rng = np.random.default_rng(1)
    logits = np.rint(rng.normal(scale=1.5, size=(5, WIDTH)))
    logits[2] = np.where(rng.random(WIDTH) < 0.5, 0.0, -0.0)
    logits[4] = rng.normal(size=WIDTH)
    return mx.array(logits, mx.float32)


def _equal(*expected: Sequence[int]) -> Callable[[Outputs], bool]:
    return lambda outputs: all(
        np.array_equal(np.array(output), right)
        for output, right in zip(outputs, expected, strict=True)
    )


def _draws() -> Iterator[Case]:
    logits = _logits()
    depths = mx.arange(5, dtype=mx.uint32)
    for draw in range(9):
        sampling = (CUT, NUCLEUS, BEST_TWO)[draw % 3]
        noise = Noise(99, draw, 40 * draw, 5, WIDTH)
        expected = [
            int(np.argmax(distribution(sampling, row).log_p + gumbel(noise, TARGET, i, WIDTH)))
            for i, row in enumerate(wide(logits))
        ]
        yield _draw(sampling, logits, depths, noise, expected)
    greedy = Sampling(temperature=0)
    last = mx.arange(WIDTH) == WIDTH - 1
    for value, best in ((mx.nan, NO_TOKEN), (mx.max(logits[0]), int(mx.argmax(logits[0]).item()))):
        row = mx.where(last, value, logits[:1])
        yield _draw(greedy, row, depths[:1], None, [best])


def _draw(
    sampling: Sampling, logits: mx.array, depths: mx.array, noise: Noise | None, drawn: list[int]
) -> Case:
    arrays = (logits, depths, accept.noise_place(noise), accept.sampling_options(sampling))
    launch = accept.draw_launch(logits, sampling, noise)
    return Case(accept.DRAW, arrays, launch, _equal(drawn), same_bits=True)


def _walks() -> Iterator[Case]:
    def walk(
        parents: tuple[int, ...], drafted: list[int], drawn: list[int], path: list[int], token: int
    ) -> Case:
        nodes, _, _ = accept._edges(parents)
        arrays = (mx.array(drawn, mx.uint32), mx.array(drafted, mx.uint32), nodes)
        accepted = len(path) if drawn[-1] != NO_TOKEN else -1
        right = _equal([accepted], [token], [*path, *[-1] * (32 - len(path))])
        return Case(accept.WALK, arrays, accept.WALK_LAUNCH, right)

    tree = (-1, -1, 0, 0, 3)
    yield walk(tree, [3, 5, 3, 1, 1], [3, 1, 6, 6, 1, 2], [0, 3, 4], 2)
    yield walk(tree, [3, 5, 3, 1, 1], [4, 1, 6, 6, 1, 2], [], 4)
    yield walk(tree, [3, 5, 3, 1, 1], [5, 1, 6, 6, 1, 2], [1], 6)
    chain = tuple(range(-1, 31))
    yield walk(chain, [7] * 32, [7] * 33, list(range(32)), 7)
    yield walk(chain, [7] * 32, [7] * 32 + [NO_TOKEN], list(range(32)), 0)


def _measures() -> Iterator[Case]:
    logits = _logits()
    sampling = Sampling(temperature=0.8, min_p=0.2)
    expected = [distribution(sampling, row).log_p.max() for row in wide(logits)]

    def right(outputs: Outputs) -> bool:
        scales = wide(outputs[0])
        tops = wide(logits).max(axis=1)
        return bool(
            np.array_equal(scales[:, 0], tops) and np.allclose(-scales[:, 1], expected, atol=NEAR)
        )

    arrays = (logits, accept.sampling_options(sampling))
    launch = accept.measure_launch(logits, sampling)
    yield Case(accept.MEASURE, arrays, launch, right, same_bits=True)


def _blocks() -> Iterator[Case]:
    rng = np.random.default_rng(2)
    told = 0
    while told < 24:
        case = one_pass(rng, "block", 3, WIDTH, mx.float32)
        found = outcome(case)
        # Where some but not all of it stands there is most to go wrong.
        if found.accepted in (1, 2):
            told += 1
            yield _block(case, found.accepted, found.token)
    assert case.log_q is not None
    never = mx.arange(case.log_q.shape[1]) == case.drafted[:, None]
    yield _block(replace(case, log_q=mx.where(never, -mx.inf, case.log_q)), -1, 0)
    last = mx.arange(4)[:, None] == 3
    yield _block(replace(case, logits=mx.where(last, mx.nan, case.logits)), -1, 0)
    # A residual of zeros: q is above p everywhere.
    for position in range(3):
        plain, logits = Sampling(temperature=1.0), _logits()[3:]
        scores = plain.scores(logits[:1])
        noise = Noise(5, 0, position, 2, WIDTH)
        best = mx.argmax(scores, axis=-1)
        case = Pass("block", plain, logits, best, scores + 3, noise)
        found = outcome(case)
        yield _block(case, found.accepted, found.token)


def _block(case: Pass, accepted: int, token: int) -> Case:
    options = accept.sampling_options(case.sampling)
    launch = accept.measure_launch(case.logits, case.sampling)
    with installed(inspected=False):
        scales, cuts = accept.MEASURE((case.logits, options), launch)
    place = accept.noise_place(case.noise)
    assert case.log_q is not None
    arrays = (case.logits, scales, cuts, case.drafted, case.log_q, place, options)
    launch = accept.block_launch(case.logits)
    return Case(accept.BLOCK, arrays, launch, _equal([accepted], [token]), same_bits=True)


def _samples() -> Iterator[Case]:
    logits = _logits()
    for row in (0, 4):
        noise = Noise(3, 5, 70, 4, WIDTH)
        log_p = distribution(CUT, wide(logits)[row]).log_p
        token = int(np.argmax(log_p + gumbel(noise, DRAFT, 1, WIDTH)))

        def right(outputs: Outputs, token: int = token, log_p: np.ndarray = log_p) -> bool:  # type: ignore[type-arg]
            found = np.exp(wide(outputs[1])[0])
            return outputs[0].item() == token and np.allclose(found, np.exp(log_p), atol=NEAR)

        line = logits[row : row + 1]
        arrays = (line, accept.noise_place(noise, 1), accept.sampling_options(CUT))
        launch = accept.sample_launch(line, CUT)
        yield Case(accept.SAMPLE, arrays, launch, right, same_bits=True)
