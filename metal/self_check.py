"""The self-check of kernels, on the machine that they run on and before anything depends on them.

Kernels cannot be tested in advance on every GPU. So every variant that a pair could use is compiled
and run here, compared with its portable reference and with recorded results, and timed against what
MLX does instead. A variant that fails, does not compile or is slower is not used.

``expected.json`` records the results of the portable references. For matmuls the numbers are small
multiples of a power of two, so that every order of adding gives the same sum; for choices the best
two scores are further apart than any rounding error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import statistics
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from macspec.config.paths import cache_folder
from macspec.errors import brief
from macspec.io import write_atomic
from macspec.noise import DRAFT, TARGET, Noise, bits
from macspec.sampling import Sampling
from macspec.verification import rule_named

from . import accept, matmul, verify_attention
from .kernel import dtype_name
from .matmul import STRICT, Matmul, Matrix, multiply
from .variants import ACCEPT, MATMUL_ROWS, Choice, Variant
from .verify_attention import Attention

FORMAT = 2
CHAIN = 16
"""Calls that are timed together, each waiting for the one before: as in a pass."""
REPEATS = 5
CRASHED = "its last self-check ended the program"

TOLERANCE = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}
"""Largest error, in units of the largest value, between kernel and reference: matmuls and
attention are added in float32 on both sides, so it is some roundings of the type."""

COMPARED = 2048
"""Outputs at either end of a matrix that are compared with the reference, which needs all of its
weights in float32."""

PASSES = 4
"""Random passes on which choices must be equal to the reference's."""

OUTPUTS, INPUTS = 2048, 512
"""Of the recorded matrices."""
WIDTH, DEPTH = 1000, 4
"""Of the recorded passes: ids, and drafted tokens."""
SEED = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a variant's self-check."""

    failure: str | None
    """Why it is not used though it may be fast; None if it passed."""
    seconds: float | None = None
    mlx_seconds: float | None = None
    """Of one call of macspec's kernel, and of what MLX does instead."""

    @property
    def speed(self) -> float | None:
        """How many times as fast as MLX it is."""
        if self.seconds is None or self.mlx_seconds is None:
            return None
        return self.mlx_seconds / self.seconds

    @property
    def faster(self) -> bool:
        """Whether it passed and is faster than MLX."""
        return self.failure is None and self.speed is not None and self.speed > 1


@cache
def source_hash() -> str:
    """A hash of everything that decides what the kernels compute and how they are launched."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.iterdir()):
        if file.suffix in (".metal", ".py", ".json"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def machine() -> dict[str, str]:
    """What an outcome depends on beside the variant."""
    return {
        "chip": str(mx.device_info().get("device_name") or platform.machine()),
        "macos": platform.mac_ver()[0],
        "mlx": version("mlx"),
        "macspec": version("macspec"),
        "kernels": source_hash(),
    }


class Outcomes:
    """Outcomes on this machine by variant, in a small file that may vanish at any time.

    Args:
        path: the file; None: in the user's cache folder.
        made_for: what the outcomes depend on; None: this machine.
    """

    def __init__(self, path: Path | None = None, made_for: Mapping[str, str] | None = None) -> None:
        self._made_for = dict(machine() if made_for is None else made_for)
        name = hashlib.sha256(json.dumps(self._made_for, sort_keys=True).encode()).hexdigest()
        self._path = path or cache_folder() / "kernels" / f"{name[:16]}.json"
        self.found: dict[str, Outcome] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            stored: Any = json.loads(self._path.read_text(encoding="utf-8"))
            if stored["format"] == FORMAT and stored["made_for"] == self._made_for:
                self.found = {
                    str(name): Outcome(**outcome) for name, outcome in stored["outcomes"].items()
                }
                if stored["checking"] is not None:
                    self.found[stored["checking"]] = Outcome(CRASHED)

    def save(self, checking: str | None = None) -> None:
        """Replace the file; ``checking`` is a variant that may end the program.

        What cannot be written is not kept.
        """
        text = json.dumps(
            {
                "format": FORMAT,
                "made_for": self._made_for,
                "checking": checking,
                "outcomes": {name: asdict(outcome) for name, outcome in self.found.items()},
            }
        )
        with contextlib.suppress(OSError):
            write_atomic(self._path, text, make_folder=True)


def self_check(
    variants: Sequence[Variant],
    matrices: Mapping[Matmul, Matrix],
    outcomes: Outcomes,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Variant, Outcome]:
    """The outcome of every variant, checked now unless it was before.

    Args:
        matrices: of the model, one for each matmul.
    """
    missing = [variant for variant in variants if str(variant) not in outcomes.found]
    for variant in missing:
        outcomes.save(checking=str(variant))
        outcomes.found[str(variant)] = _outcome(variant, matrices, clock)
    if missing:
        outcomes.save()
        mx.clear_cache()
    return {variant: outcomes.found[str(variant)] for variant in variants}


def _outcome(
    variant: Variant, matrices: Mapping[Matmul, Matrix], clock: Callable[[], float]
) -> Outcome:
    try:
        check = check_of(variant, matrices)
        if failure := check.failure():
            return Outcome(failure)
        return Outcome(None, *timed(check, clock))
    except Exception as error:
        return Outcome(f"it does not run on this machine ({brief(error)})")


@dataclass(frozen=True)
class Check:
    """One variant, ready to run on the device.

    Attributes:
        start: what a chain of calls begins with.
        ours, mlx: one call by macspec's kernel, and by what MLX does instead. Each returns its
            argument, once the result is there: a chain is as many calls, one after the other.
        failure: what is wrong with the kernel's results, in half a sentence; None if they are
            right.
    """

    start: mx.array
    ours: Callable[[mx.array], mx.array]
    mlx: Callable[[mx.array], mx.array]
    failure: Callable[[], str | None]


def timed(check: Check, clock: Callable[[], float]) -> tuple[float, float]:
    """Median seconds of one call of ours and of MLX's, measured in turn."""
    taken: tuple[list[float], list[float]] = [], []
    for repeat in range(REPEATS + 1):
        for call, seconds in zip((check.ours, check.mlx), taken, strict=True):
            x, begin = check.start, clock()
            for _ in range(CHAIN):
                x = call(x)
            mx.eval(x)
            each = (clock() - begin) / CHAIN
            if repeat:  # the first only warms up
                seconds.append(each)
    return statistics.median(taken[0]), statistics.median(taken[1])


def check_of(variant: Variant, matrices: Mapping[Matmul, Matrix]) -> Check:
    """The check of a variant, with a matrix of the model where it takes one."""
    if isinstance(variant.shape, Matmul):
        return _matmul_check(variant, matrices[variant.shape])
    if isinstance(variant.shape, Attention):
        return _attention_check(variant.rows, variant.shape)
    return _choice_check(variant, variant.shape)


def _matmul_check(variant: Variant, matrix: Matrix) -> Check:
    kernel, dtype = variant.kernel, matrix.dtype
    x = _normal((variant.rows, matrix.inputs), dtype)

    def failure() -> str | None:
        fixed = recorded_matrix(matrix.bits, matrix.group_size, dtype)
        y = multiply(kernel, recorded_inputs(variant.rows, dtype), fixed)
        sums = recorded()["products"][matmul_key(matrix.bits, matrix.group_size, dtype)].split()
        if checksum(y) != sums[MATMUL_ROWS.index(variant.rows)]:
            return "its bits are not the recorded ones"
        y = multiply(kernel, x, matrix)
        if kernel == STRICT:
            same = mx.array_equal(y, matmul.row_by_row(x, matrix))
            return None if same else "its bits are not those of MLX's one-row kernel"
        for begin in {0, max(matrix.outputs - COMPARED, 0)}:
            some = slice(begin, begin + COMPARED)
            part = replace(
                matrix, w=matrix.w[some], scales=matrix.scales[some], biases=matrix.biases[some]
            )
            if why := _distance(y[:, some], matmul.reference(x, part)):
                return why
        return None

    return Check(
        x,
        lambda x: _after(multiply(kernel, x, matrix)[:, :1], x),
        lambda x: _after(matmul.by_mlx(x, matrix)[:, :1], x),
        failure,
    )


def _attention_check(rows: int, shape: Attention) -> Check:
    queries = _normal((1, shape.query_heads, rows, shape.width), shape.dtype)
    keys = _normal((1, shape.heads, shape.length, shape.width), shape.dtype, 1)
    values = _normal((1, shape.heads, shape.length, shape.value_width), shape.dtype, 2)
    scale = float(shape.width**-0.5)
    chain = verify_attention.causal(rows)
    # In the tree every row sees the first and itself.
    tree = tuple(1 | 1 << row for row in range(rows))

    def ours(queries: mx.array) -> mx.array:
        out = verify_attention.verify_attention(queries, keys, values, sees=chain, scale=scale)
        return _after(out[..., :1], queries)

    def mlx(queries: mx.array) -> mx.array:
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask="causal"
        )
        return _after(out[..., :1], queries)

    def failure() -> str | None:
        for sees in (chain, tree):
            for length in (shape.length, 100):
                arrays = queries, keys[:, :, :length], values[:, :, :length]
                out = verify_attention.verify_attention(*arrays, sees=sees, scale=scale)
                right = verify_attention.reference(*arrays, sees=sees, scale=scale)
                if why := _distance(out, right):
                    return why
        return None

    return Check(queries, ours, mlx, failure)


def _choice_check(variant: Variant, shape: Choice) -> Check:
    accepts, block = variant.kernel == ACCEPT, shape.rule == "block"
    sampling = recorded_sampling(shape.rule, shape.truncated)
    rule = rule_named("block" if block else "keyed")
    logits = _normal((variant.rows, shape.width), shape.dtype) * 3
    likely = logits[: max(variant.rows - 1, 1)].astype(mx.float32)
    log_q = None
    if block and accepts:
        likely = log_q = sampling.scores(likely * 0.9)
    drafted = mx.argmax(likely, axis=-1).astype(mx.uint32)

    def verdict(x: mx.array, number: int, ours: bool) -> tuple[mx.array, ...]:
        noise = noise_of(number)
        if ours:
            found = accept.accept(sampling, logits, x, log_q, noise)
        else:
            found = rule.accept(sampling.scores(logits), x, log_q, noise)
        return found.accepted, found.token

    def draw(x: mx.array, number: int, ours: bool) -> tuple[mx.array, ...]:
        noise, rows = noise_of(number), _after(x, logits)
        if ours:
            return accept.draft_sample(sampling, rows, noise, 0, keeps_q=block)[:1]
        scores = sampling.scores(rows)
        if noise is not None:
            drawn = rule.draft_noise(noise)
            assert drawn is not None
            scores = scores + drawn[:1]
        return (mx.argmax(scores, axis=-1),)

    def noise_of(number: int) -> Noise | None:
        if shape.rule == "greedy":
            return None
        return Noise(SEED, number, 10 * number, variant.rows, shape.width)

    def call(x: mx.array, ours: bool) -> mx.array:
        for result in choose(x, 0, ours):
            x = _after(result, x)
        return x

    def chosen(number: int, ours: bool) -> list[Any]:
        return [result.item() for result in choose(drafted, number, ours)]

    def failure() -> str | None:
        run: Any = accept.accept if accepts else accept.draft_sample
        found: Any = (verdicts if accepts else drafts)(
            run, shape.rule, shape.truncated, shape.dtype
        )
        stored = recorded()["accept" if accepts else "draft_sample"]
        if found != stored[choice_key(shape.rule, shape.truncated)]:
            return "its choices are not the recorded ones"
        if any(chosen(number, True) != chosen(number, False) for number in range(PASSES)):
            return "its choices are not the reference's"
        return None

    choose = verdict if accepts else draw
    return Check(drafted, lambda x: call(x, True), lambda x: call(x, False), failure)


def _normal(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    """Normal variates that do not depend on the device."""
    random = np.random.default_rng([*shape, seed])
    return mx.array(random.standard_normal(shape, np.float32)).astype(dtype)


def _after(result: mx.array, x: mx.array) -> mx.array:
    """``x``, once ``result``, which can be broadcast to it, is there."""
    return x + (result * 0).astype(x.dtype)


def _distance(found: mx.array, right: mx.array) -> str | None:
    """How far two results are apart, if that is too far."""
    difference = mx.max(mx.abs(found.astype(mx.float32) - right.astype(mx.float32)))
    largest: Any = mx.max(mx.abs(right.astype(mx.float32))).item()
    error: Any = difference.item()
    # Not a number is not right either.
    if error <= TOLERANCE[right.dtype] * largest:
        return None
    return f"off by {error / (largest or 1):.1e} of the largest value"


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """What ``expected.json`` holds."""
    stored: dict[str, dict[str, Any]] = json.loads(
        (Path(__file__).parent / "expected.json").read_text(encoding="utf-8")
    )
    return stored


def matmul_key(bits: int, group_size: int, dtype: mx.Dtype) -> str:
    """Of recorded matmuls, which are checksums by number of rows."""
    return f"{bits} {group_size} {dtype_name(dtype)}"


def choice_key(rule: str, truncated: bool) -> str:
    """Of recorded choices, which are the same in every type."""
    return f"{rule}{' truncated' * truncated}"


def checksum(array: mx.array) -> str:
    """Of an array's bits."""
    return f"{zlib.crc32(np.array(array.view(mx.uint8)).tobytes()):08x}"


def recorded_matrix(bits: int, group_size: int, dtype: mx.Dtype) -> Matrix:
    """A matrix [2048, 512] of multiples of 2^(1 - bits) from -2 to below 2."""
    packed = _hashed((OUTPUTS, INPUTS * bits // 32), bits)
    wide = _hashed((OUTPUTS, INPUTS // group_size), 5) % mx.array(2, mx.uint32) == 0
    scales = mx.where(wide, 2.0 ** (2 - bits), 2.0 ** (1 - bits)).astype(dtype)
    biases = mx.where(wide, -2.0, -1.0).astype(dtype)
    return Matrix(packed, scales, biases, group_size, bits)


def recorded_inputs(rows: int, dtype: mx.Dtype) -> mx.array:
    """[rows, 512] of -2 to 2."""
    most = _hashed((MATMUL_ROWS[-1], INPUTS), 7)[:rows] % mx.array(5, mx.uint32)
    return (most.astype(mx.float32) - 2).astype(dtype)


def recorded_logits(dtype: mx.Dtype) -> mx.array:
    """[5, 1000] of multiples of 1/16 from 0 to below 8, with ties, and the same in every type."""
    steps = _hashed((DEPTH + 1, WIDTH), 11) % mx.array(128, mx.uint32)
    return (steps.astype(mx.float32) / 16).astype(dtype)


def recorded_sampling(rule: str, truncated: bool) -> Sampling:
    """How the recorded choices are made."""
    how = Sampling(temperature=0 if rule == "greedy" else 0.8)
    return replace(how, top_k=40, top_p=0.9) if truncated else how


def recorded_noise(rule: str, draw: int = 3) -> Noise | None:
    """Of a pass whose choices are recorded; every ``draw`` has other numbers under block."""
    return None if rule == "greedy" else Noise(SEED, draw, 100 + draw, DEPTH + 1, WIDTH)


def verdicts(
    run: Callable[..., Any], rule: str, truncated: bool, dtype: mx.Dtype
) -> list[list[int]]:
    """How many drafted tokens ``run`` (as ``accept``) accepts, and what follows, in five passes.

    Under match none to all of the drafted tokens are right; under block they are draws.
    """
    how, rows = recorded_sampling(rule, truncated), recorded_logits(dtype)
    found = []
    for draw in range(DEPTH + 1):
        noise = recorded_noise(rule, draw)
        log_q = None
        if rule == "block":
            assert noise is not None
            log_q = how.scores(recorded_logits(mx.float32)[:DEPTH] * 0.9, None)
            drafted = mx.argmax(log_q + noise.gumbel(DRAFT)[:DEPTH], axis=-1)
        else:
            scores = how.scores(recorded_logits(mx.float32), None)
            right = scores if noise is None else scores + noise.gumbel(TARGET)
            drafted = mx.argmax(right, axis=-1)[:DEPTH]
            drafted = mx.where(mx.arange(DEPTH) < draw, drafted, (drafted + 1) % WIDTH)
        verdict = run(how, rows, drafted.astype(mx.uint32), log_q, noise)
        found.append([int(verdict.accepted.item()), int(verdict.token.item())])
    return found


def drafts(run: Callable[..., Any], rule: str, truncated: bool, dtype: mx.Dtype) -> list[int]:
    """The tokens that ``run`` (as ``draft_sample``) draws at each step."""
    how, noise = recorded_sampling(rule, truncated), recorded_noise(rule)
    rows = recorded_logits(dtype)
    return [
        int(run(how, rows[step : step + 1], noise, step, keeps_q=rule == "block")[0].item())
        for step in range(DEPTH)
    ]


def _hashed(shape: tuple[int, ...], seed: int) -> mx.array:
    """uint32 from the noise's hash, the same everywhere."""
    keys = mx.array([[seed, seed + 1]], mx.uint32)
    drawn: mx.array = bits(keys, mx.arange(int(np.prod(shape)), dtype=mx.uint32))
    return drawn.reshape(shape)
