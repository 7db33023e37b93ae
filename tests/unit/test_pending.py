"""Rows that stay pending: kernels take them into the states one pass late.

The kernels' portable references stand in for the kernels.
"""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import qwen3_5, ssm
from replies import assert_like_fresh
from test_decoding import GREEDY, KEYED, PROMPT, disturbed, session_of, tokens_of
from test_hybrids import ROWS, SERIAL, TEXT, fed, fresh, walk
from tinymodels import VOCABULARY, tiny

from macspec import Round
from macspec.cache import ModelCache
from macspec.control import Controller
from macspec.kernels import Kernels
from macspec.metal import gated_delta, mamba2
from macspec.metal.recurrences import NETS
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.models.rollback import pending_rows_of, recorder_of
from macspec.pending import Pending, PendingRows, _heard

REFERENCES = {"gated_delta": gated_delta.reference, "mamba2": mamba2.reference}
MOST_ROWS = 12
GATED = ["qwen3_5", "qwen3_next", "kimi_linear", "qwen3_5_moe", "olmo_hybrid", "qwen3_5-wide"]
MAMBA2 = ["mamba2", "nemotron_h", "granitemoehybrid", "falcon_h1", "plamo2"]
OTHERS = [*MAMBA2, "lfm2", "lfm2_moe"]
"""States of Mamba-2, and convolutions alone."""
NAMES = [
    pytest.param(name, marks=() if name in ("qwen3_5", "lfm2") else pytest.mark.slow)
    for name in (*GATED, *OTHERS)
]


class Portable:
    """A recurrence by its portable reference, which counts its runs."""

    def __init__(self, net: Any, run: Callable[..., Any] | None = None) -> None:
        self.stock, self.rows = net.stock, net.rows
        self._run = run or REFERENCES[net.kernel]
        self.runs = 0

    def takes(self, rows: int) -> bool:
        return rows <= MOST_ROWS

    def run(self, *given: Any) -> Any:
        self.runs += 1
        return self._run(*given)


class PortableKernels(Kernels):
    """MLX's own, but for the recurrences."""

    def __init__(self, run: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.portable = [Portable(net, run) for net in NETS]

    @property
    def recurrences(self) -> Any:
        return self.portable

    @property
    def runs(self) -> int:
        return sum(it.runs for it in self.portable)


KERNELS = PortableKernels()


def pending_rows(name: str, kernels: PortableKernels = KERNELS) -> PendingRows | None:
    model = tiny(name)
    return pending_rows_of(model, VOCABULARY, recorder_of(model, VOCABULARY), kernels.recurrences)


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_goes_back_to_each_of_its_rows(name: str) -> None:
    taking = pending_rows(name)
    assert taking is not None
    tolerance = 0.0 if name in SERIAL else 1e-5
    for kept in range(len(ROWS) + 1):
        straight, cache = fresh(name), fresh(name, pending_rows=taking)
        if kept:
            fed(name, straight, ROWS[:kept])
        fed(name, cache, ROWS)
        cache.rollback(len(TEXT) + min(kept + 1, len(ROWS)))
        cache.rollback(len(TEXT) + kept)
        assert cache.length == len(TEXT) + kept
        assert not cache.can_rollback(cache.length + 1)
        # A pass of several rows takes the pending ones in, and one of a single row folds them.
        for tokens in ([4, 40, 14], ROWS, [3], [8, 1], [9]):
            a, b = fed(name, cache, tokens), fed(name, straight, tokens)
            assert mx.abs(a - b).max().item() <= tolerance * max(1.0, mx.abs(b).max().item())


@pytest.mark.parametrize(
    ("name", "depths"),
    [
        ("qwen3_5", (5,)),
        *(pytest.param(it, (1, 4, 8), marks=pytest.mark.slow) for it in (*GATED, *OTHERS)),
    ],
)
@pytest.mark.parametrize("sampling", [GREEDY, KEYED], ids=["greedy", "keyed"])
def test_replies_are_those_of_plain_decoding(
    pocket: Pair, name: str, depths: Sequence[int], sampling: Any
) -> None:
    expected = tokens_of(session_of(pocket, name, method="off", rule="keyed"), PROMPT, sampling, 40)
    for method, depth in (*(("draft", it) for it in depths), ("ngram", 3), ("suffix", 8)):
        session = session_of(
            pocket, name, method=method, depth=depth, rule="keyed", kernels=KERNELS
        )
        assert tokens_of(session, PROMPT, sampling, 40) == expected, (method, depth)
        assert_like_fresh(session)


@pytest.mark.parametrize("name", NAMES)
def test_method_and_depth_change_in_mid_reply(pocket: Pair, name: str) -> None:
    expected = tokens_of(session_of(pocket, name, method="off", rule="keyed"), PROMPT, KEYED, 48)
    rng = random.Random(5)
    session = session_of(pocket, name, rule="keyed", kernels=KERNELS)
    for _ in session.reply(" ".join(map(str, PROMPT)), KEYED, raw=True, max_tokens=48):
        if rng.random() < 0.4:
            session.method = rng.choice(["draft", "draft", "ngram", "off", "auto"])
            session.depth = rng.choice(["auto", 0, 1, 2, 4, 8, 14])
    assert session.finished is not None
    assert session.finished.token_ids == expected
    assert_like_fresh(session)


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("qwen3_5", 8),
        *(
            pytest.param(it, 60, marks=pytest.mark.slow)
            for it in ("qwen3_5", "kimi_linear", "lfm2")
        ),
    ],
)
def test_a_random_walk_gives_what_fresh_sessions_give(
    pocket: Pair, name: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk(pocket, name, turns, monkeypatch, kernels=KERNELS)


@pytest.fixture
def one_row_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mamba-2 takes rows one after the other, as a Mac does in passes of one row."""

    def ssm_attn(*args: Any, **named: Any) -> Any:
        bound = inspect.signature(stock).bind(*args, **named)
        bound.apply_defaults()
        given: dict[str, Any] = {PARAMETERS.get(it, it): a for it, a in bound.arguments.items()}
        rows = mamba2.Rows.of(given)
        y, _ = mamba2.reference(given["state"], rows, 0, rows)
        return y, mamba2.reference(given["state"], rows, y.shape[1], rows)[1]

    stock = ssm.ssm_attn
    monkeypatch.setattr(ssm, "ssm_attn", ssm_attn)


PARAMETERS = {"x": "hidden_states"}


@pytest.mark.usefixtures("one_row_arithmetic")
@pytest.mark.parametrize(
    ("name", "walks"),
    [("mamba2", 2), *(pytest.param(name, 8, marks=pytest.mark.slow) for name in MAMBA2)],
)
def test_passes_of_mamba2_have_the_bits_of_single_rows(name: str, walks: int) -> None:
    """After rejections, interrupted passes and returns to a checkpoint."""
    rng = random.Random(walks)

    def drawn(count: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(count)]

    for _ in range(walks):
        held, cache, plain = list(TEXT), fresh(name, pending_rows=pending_rows(name)), fresh(name)
        for count in rng.choices([1, 1, 2, 3, 5, 8, 20], k=8):
            if rng.random() < 0.3:
                interrupted(name, cache, drawn(count), rng.random() < 0.5)
                cache.rollback(len(held))
            tokens = drawn(count)
            found = fed(name, cache, tokens)
            kept = rng.randint(0, count)
            cache.rollback(len(held) + kept)
            for row, token in zip(found[:kept], tokens, strict=False):
                assert mx.array_equal(row, fed(name, plain, [token])[0]).item()
            held += tokens[:kept]
            if rng.random() < 0.2:
                cache.checkpoint()
            if rng.random() < 0.2:
                cache.return_to(len(held))
                if cache.length < len(TEXT):
                    break
                held, plain = held[: cache.length], fresh(name)
                for token in held[len(TEXT) :]:
                    fed(name, plain, [token])


def interrupted(name: str, cache: ModelCache, tokens: list[int], half: bool) -> None:
    """A pass that is stopped before it is counted, or before its rows are known."""
    with suppress(StopError):
        cache.mark(len(tokens))
        with cache.recording(len(tokens)):
            tiny(name)(mx.array([tokens]), cache=cache.layers)
            if half:
                raise StopError
        raise StopError


def test_rows_that_are_gone_do_not_come_back() -> None:
    cache = fresh("mamba2", pending_rows=pending_rows("mamba2"))
    fed("mamba2", cache, ROWS)
    cache.rollback(len(TEXT) + 2)
    assert not cache.can_rollback(len(TEXT) + 3)


def test_taking_rows_back_runs_nothing(pocket: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[bool] = []
    monkeypatch.setattr(Controller, "observe_cost", lambda *given: replays.append(given[-2]))
    tokens_of(session_of(pocket, "qwen3_5", method="draft", depth=4), PROMPT, GREEDY, 40)
    assert any(replays)
    kernels = PortableKernels()
    session = session_of(pocket, "qwen3_5", method="draft", depth=4, kernels=kernels)
    runs, rejected, replays[:] = [], 0, []
    for event in session.reply(" ".join(map(str, PROMPT)), GREEDY, raw=True, max_tokens=40):
        if isinstance(event, Round):
            rejected += event.drafted - event.accepted
            runs.append(kernels.runs)
    layers = 2
    # The first pass has more rows than these kernels take, and the last round launches no other.
    assert {b - a for a, b in pairwise(runs[1:-1])} == {layers}
    assert rejected > 10
    assert not any(replays[1:])


def test_a_window_is_a_slice_and_no_copy() -> None:
    cache = fresh("lfm2", pending_rows=pending_rows("lfm2"))
    fed("lfm2", cache, ROWS)
    pending = cache._pending
    assert isinstance(pending, Pending)
    for kept in (5, 2, 0):
        pending = pending.keep(kept)
        for (leaf, at), source in pending.windows:
            mx.eval(source, leaf[at])
            window, whole = (np.array(it, copy=False) for it in (leaf[at], source))
            assert np.shares_memory(window, whole)
            assert np.array_equal(window, whole[:, kept : kept + 2])


# ---- what goes wrong ----------------------------------------------------------------------------


def a_row_more(state: Any, before: Any, kept: int, rows: Any) -> Any:
    return gated_delta.reference(state, before, kept + (0 < kept < 5), rows)


def a_row_less(state: Any, before: Any, kept: int, rows: Any) -> Any:
    return gated_delta.reference(state, before, max(kept - 1, 0), rows)


def all_rows(state: Any, before: Any, kept: int, rows: Any) -> Any:
    return gated_delta.reference(state, before, before.k.shape[1] if kept else 0, rows)


def a_stale_state(state: Any, before: Any, kept: int, rows: Any) -> Any:
    y, after = gated_delta.reference(state, before, kept, rows)
    return y, after if state is None else state


def the_new_rows_twice(state: Any, before: Any, kept: int, rows: Any) -> Any:
    y, after = gated_delta.reference(state, before, kept, rows)
    return y, gated_delta.reference(after, rows, rows.k.shape[1], rows)[1]


def raising(*_: Any) -> Any:
    raise RuntimeError("[metal] no such kernel")


@pytest.mark.parametrize(
    "run", [a_row_more, a_row_less, all_rows, a_stale_state, the_new_rows_twice, raising]
)
def test_the_trial_at_load_refuses_a_wrong_kernel(run: Callable[..., Any]) -> None:
    assert pending_rows("qwen3_5", PortableKernels(run)) is None


def test_the_trial_at_load_refuses_windows_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pending, "keep", lambda pending, kept: replace(pending, kept=kept))
    assert pending_rows("qwen3_5", PortableKernels()) is None


def test_a_model_whose_states_come_from_elsewhere_is_refused() -> None:
    for name in ("jamba", "rwkv7", "qwen3_5"):
        assert pending_rows(name, PortableKernels() if name != "qwen3_5" else Bare()) is None


class Bare(PortableKernels):
    """Without a kernel for any recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.portable = []


class StopError(BaseException):
    """As an interrupt: nothing catches it."""


@pytest.mark.parametrize(
    "at", [2, 4, *(pytest.param(it, marks=pytest.mark.slow) for it in (1, 3, 5, 6))]
)
def test_an_interrupt_in_a_pass_or_a_fold_costs_nothing(pocket: Pair, at: int) -> None:
    stock = qwen3_5.gated_delta_update
    expected = tokens_of(session_of(pocket, "qwen3_5", method="off"), PROMPT, GREEDY, 24)
    left = [10**9]

    def run(*given: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise StopError
        return gated_delta.reference(*given)

    session = session_of(pocket, "qwen3_5", method="draft", depth=3, kernels=PortableKernels(run))
    assert session.decoder.target.cache._pending_rows is not None
    tokens_of(session, PROMPT, GREEDY, 8)
    left[0] = at
    longer = [*PROMPT, *expected[:8]]

    def go_on() -> None:
        for event in session.reply(" ".join(map(str, longer)), GREEDY, raw=True, max_tokens=16):
            if isinstance(event, Round):
                # Rounds of one row fold what is pending.
                session.depth = 3 - int(session.depth)

    with pytest.raises(StopError):
        go_on()
    assert qwen3_5.gated_delta_update is stock
    assert tokens_of(session, longer, GREEDY, 16) == expected[8:]
    assert_like_fresh(session)


def test_a_function_that_an_interrupt_left_replaced_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stock = qwen3_5.gated_delta_update
    monkeypatch.setattr(qwen3_5, "gated_delta_update", _heard(stock, stock))
    kernels = PortableKernels()
    assert pending_rows("qwen3_5", kernels) is not None
    assert kernels.runs


def test_other_models_of_the_architecture_are_left_alone() -> None:
    name, stock = "qwen3_5", qwen3_5.gated_delta_update
    other = disturbed(name)
    alone = other(mx.array([ROWS]))
    mx.eval(alone)
    found: list[Any] = []

    def run(*given: Any) -> Any:
        def beside() -> None:
            with mx.stream(mx.new_stream(mx.default_device())):
                found.append(mx.array_equal(other(mx.array([ROWS])), alone).item())

        if len(found) < 2:
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join(60)
        return gated_delta.reference(*given)

    model = CachedModel(tiny(name), VOCABULARY, kernels=PortableKernels(run))
    found.clear()
    model.logits(mx.array(ROWS), 1)
    assert found == [True, True]
    assert qwen3_5.gated_delta_update is stock


def test_two_models_of_one_architecture_take_turns() -> None:
    name = "qwen3_5"
    modules = tiny(name), disturbed(name)
    ours = [CachedModel(it, VOCABULARY, kernels=PortableKernels()) for it in modules]
    plain = [CachedModel(it, VOCABULARY) for it in modules]
    for turn in range(6):
        for a, b in zip(ours, plain, strict=True):
            rows = mx.array(ROWS[: 2 + turn % 4])
            assert mx.array_equal(a.logits(rows, 1), b.logits(rows, 1)).item()
            for model in (a, b):
                model.rollback(model.length - turn % 3)


@pytest.mark.parametrize(
    ("name", "kernels", "how"),
    [
        ("qwen3_5", Kernels, "recorded"),
        ("qwen3_5", PortableKernels, "pending"),
        ("lfm2", Kernels, "pending"),
        ("llama", Kernels, None),
    ],
)
def test_what_is_said_is_what_is_done(name: str, kernels: type[Kernels], how: str | None) -> None:
    cache = CachedModel(tiny(name), VOCABULARY, kernels=kernels()).cache
    assert cache.rollback_by == how
    if cache.stateful:
        cache.mark(3)
        with cache.recording(3):
            tiny(name)(mx.array([[3, 4, 5]]), cache=cache.layers)
        cache.advance(3)
        assert cache.replays == (how == "recorded")
