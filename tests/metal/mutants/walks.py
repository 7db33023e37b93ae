"""Ways in which the walks along a block could be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
from harness import Case, Mutant, Outputs
from passes import wide

from macspec.metal import walks
from macspec.metal.kernel import Kernel, Launch
from macspec.noise import Noise
from macspec.sampling import Sampling

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SELECT, ROW = "selector_walk", "markov_row"
WIDTH, RANK = 61, 40
CUT = Sampling(temperature=0.8, top_k=5)
NUCLEUS = Sampling(temperature=1.2, top_p=0.6)
FLOOR = Sampling(temperature=0.9, min_p=0.2)
WHOLE = Sampling(temperature=0.7)

MUTANTS = (
    Mutant("pairs read before they are written", f"  }}\n  {BARRIER}\n  if (group == 0)",
           "  }\n  if (group == 0)", kernel=SELECT),
    Mutant("the choice read before it is written", f"{BARRIER}\n  before = chosen[0];",
           "before = chosen[0];", kernel=SELECT),
    Mutant("the walk stays at its anchor", "before = chosen[0];", "", kernel=SELECT),
    Mutant("a number too few of each row", "i < rank; i += 32) {\n      const T",
           "i + 1 < rank; i += 32) {\n      const T", kernel=SELECT),
    Mutant("a candidate too few", "at < count; at += GROUPS", "at + 1 < count; at += GROUPS",
           kernel=SELECT),
    Mutant("all rows are projected as the first", "projected[row * rank + i]", "projected[i]",
           kernel=SELECT),
    Mutant("the codebooks change places", "float(successor[id * rank + i])",
           "float(predecessor[id * rank + i])", kernel=SELECT),
    Mutant("logits left out", "unary[row * count + lane] + float(T(pairs[lane]))",
           "float(T(pairs[lane]))", kernel=SELECT),
    Mutant("NaN stays", "x = isnan(x) ? 0.0f : min(x, 3e38f);", "", kernel=SELECT),
    Mutant("lanes without a candidate count", ": -INFINITY;\n    x =", ": 0.0f;\n    x =",
           kernel=SELECT),
    Mutant("mass above counts the candidate's own", "other > x ? mass", "other >= x ? mass",
           kernel=SELECT),
    Mutant("of equals the highest id", "rival < id", "rival > id", kernel=SELECT),
    Mutant("one candidate more than k", "float(better) < options[3]", "float(better) <= options[3]",
           kernel=SELECT),
    Mutant("top-p of all", "options[1] * all", "options[1]", kernel=SELECT),
    Mutant("no min-p", " && x - top >= options[2]", "", kernel=SELECT),
    Mutant("no temperature", "(x - top) * options[0]", "(x - top)", kernel=SELECT),
    Mutant("not normalised", "lifted - log_z", "lifted", kernel=SELECT),
    Mutant("every row the same noise", "DRAFT : TARGET, row)", "DRAFT : TARGET, 0)", kernel=SELECT),
    Mutant("always the draft's noise", "KEEPS ? DRAFT : TARGET", "DRAFT", kernel=SELECT),
    Mutant("noise by place, not by id", "row), id)", "row), lane)", kernel=SELECT),
    Mutant("of equal scores the highest id", "found = simd_min(score == best ? id : ~0u)",
           "found = simd_max(score == best ? id : 0u)", kernel=SELECT),
    Mutant("a token of nothing", "tokens[row] = sound ? found : 0u;", "tokens[row] = found;",
           kernel=SELECT),
    Mutant("log-probabilities left out", "if (real) log_q", "if (real && KEEPS) log_q",
           kernel=SELECT),
    Mutant("ids in twos", "const uint first = thread_position_in_grid.x / 32 * EACH",
           "const uint first = thread_position_in_grid.x / 32 * 2", kernel=ROW),
    Mutant("written beyond the width", "min(first + EACH, width)", "first + EACH", kernel=ROW),
    Mutant("the table of what comes before is read by the guess", "earlier[start + i]",
           "earlier[guess + i]", kernel=ROW),
    Mutant("a number of each row too many", "i < rank;", "i <= rank;", kernel=ROW),
    Mutant("guesses are ids", "REDUCED ? uint(places[id]) : id", "id", kernel=ROW),
    Mutant("ids that are not guessed get a logit", "float y = -INFINITY;", "float y = 0;",
           kernel=ROW),
    Mutant("NaN stays in a row", "y = isnan(y) ? 0.0f : min(y, 3e38f);", "", kernel=ROW),
    Mutant("sums of one lane", "sum = simd_sum(sum);\n  if (lane == 0) {\n    float y",
           "if (lane == 0) {\n    float y", kernel=ROW),
)  # fmt: skip


def cases() -> list[Case]:
    """Small launches of both kernels, with what they must give."""
    return [*_selections(), *_rows()]


def _captured(run: Callable[[], Any]) -> tuple[Kernel, Sequence[mx.array], Launch]:
    """The launch that a face makes."""
    found: list[tuple[Kernel, Sequence[mx.array], Launch]] = []

    def call(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> list[mx.array]:
        found.append((kernel, arrays, launch))
        return [mx.zeros(shape, it) for shape, it in zip(launch.shapes, launch.dtypes, strict=True)]

    replacement: Any = call
    with mock.patch.object(Kernel, "__call__", replacement):
        run()
    return found[0]


def _close(*expected: mx.array) -> Callable[[Outputs], bool]:
    def right(outputs: Outputs) -> bool:
        return all(
            np.allclose(wide(output), wide(it), rtol=0, atol=1e-5, equal_nan=True)
            for output, it in zip(outputs, expected, strict=True)
        )

    return right


def _selections() -> Iterator[Case]:
    rng = np.random.default_rng(4)
    ways: list[tuple[Sampling, bool, bool]] = [
        (Sampling(temperature=0), False, False),
        *((how, True, keeps) for keeps in (True, False) for how in (WHOLE, CUT, NUCLEUS, FLOOR)),
    ]
    for number, (sampling, drawn, keeps_q) in enumerate(ways * 2):
        # Whole numbers: equals are exact, whatever the order of adding.
        tables = tuple(
            mx.array(rng.integers(-1, 2, (WIDTH, RANK)) * 0.5, mx.float32) for _ in range(2)
        )
        ids = np.stack([1 + rng.choice(WIDTH - 1, 12, replace=False) for _ in range(3)])
        unary = np.rint(rng.normal(size=(3, 12)) * 2)
        if number >= len(ways):  # nothing but equals
            tables, unary = tuple(map(mx.zeros_like, tables)), np.minimum(np.abs(unary), 1)
        if number == 0:
            unary[2] = -np.inf
        if number == 1:
            unary[1, 4] = np.nan
        parts = (
            mx.array(rng.integers(-1, 2, (3, RANK)) * 0.5, mx.float32),
            mx.array(ids, mx.uint32),
            mx.array(unary, mx.float32),
        )
        noise = Noise(9, number, 20 * number, 4, WIDTH) if drawn else None
        given = sampling, tables, parts, mx.array([3], mx.uint32), noise
        kernel, arrays, launch = _captured(lambda: walks.select(*given, keeps_q=keeps_q))  # noqa: B023
        tokens, log_q = walks.reference(*given, keeps_q=keeps_q)
        if number == 0:
            tokens = mx.where(mx.arange(3) == 2, 0, tokens)
            right = _first(_close(tokens))
        else:
            right = _close(tokens, log_q) if drawn else _first(_close(tokens))
        yield Case(kernel, arrays, launch, right, same_bits=True)


def _first(right: Callable[[Outputs], bool]) -> Callable[[Outputs], bool]:
    """Of the tokens only: without noise the log-probabilities mean nothing."""
    return lambda outputs: right(outputs[:1])  # type: ignore[arg-type]


def _rows() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    for reduced in (False, True):
        guesses = 40 if reduced else WIDTH
        tables = tuple(
            mx.array(rng.integers(-2, 3, (it, RANK)), mx.float32) for it in (WIDTH, guesses)
        )
        logits = mx.array(rng.normal(size=(1, guesses)), mx.float32)
        logits = mx.where(mx.arange(guesses) == 7, mx.nan, logits)
        places = mx.array([it // 2 if it % 2 else 40 for it in range(WIDTH)]) if reduced else None
        given = tables, logits, mx.array([8], mx.uint32), places, WIDTH - 2
        kernel, arrays, launch = _captured(lambda: walks.markov_row(*given))  # noqa: B023
        yield Case(kernel, arrays, launch, _close(walks.markov_reference(*given)), same_bits=True)
