"""Commit and rollback over mlx-lm's caches.

A pass appends its rows to every layer's cache; ``ModelCache.rollback`` takes back those that were
not accepted. A later pass then sees what it would have seen had they never been there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, KVCache, QuantizedKVCache

from .device import on_gpu
from .layercaches import layer_caches, leaves
from .pending import Pending, PendingRows
from .recurrent import Recorder, Tape
from .windowed import SLACK, ChunkedWindowKVCache, WindowedKVCache

EARLY = 2
"""Layers with keys whose work a GPU is given while the rest of a pass is still being built. On
MLX's CPU backend it is every layer's: the built-in pair's sampled rounds of depth 1 then took 5%
less time."""

_LINEAR = (KVCache, QuantizedKVCache)
_WINDOWED = (WindowedKVCache, ChunkedWindowKVCache)

PLAIN = "this model runs plain, without speculation: "

CHECKPOINTS = 3
"""States of stateful and windowed layers that are kept to return to."""

Snapshot = list[dict[str, Any]]
"""Attributes of caches. The deep copy of an array shares its data, but not later writes."""


@dataclass(slots=True)
class _Pass:
    """A pass over stateful layers."""

    start: int
    """Positions held before it."""
    states: Snapshot
    pending: Pending | None
    """Rows that the states did not hold yet."""
    rows: int = 0
    """0 until it is built."""
    tape: Tape | None = None


class ModelCache:
    """The cache of one model: mlx-lm's layer caches, advanced by passes, rolled back on rejection.

    Around a pass: `mark`, ``module(tokens, cache=cache.layers)``, `advance`, and, once the verdict
    is known, `rollback`. A stateful layer is one that a pass changes beyond appending to it: it can
    go back to before the newest pass, before each of the newest passes of one row, and with a
    recorder to any row of the newest pass.

    Args:
        slack: positions that windowed and chunked layers keep beyond their window; the most that
            can be rolled back once such a window is full.
        kv_bits: store keys and values with this many bits (`layercaches.KV_BITS`), from token 0,
            in the layers that keep every position; windows and states stay as they are.
        recorder: records the passes of a model with stateful layers.
        pending_rows: builds its passes where kernels take rows back.
        steps: passes of one row that stateful layers can go back by.

    Raises:
        BadOptionError: ``kv_bits`` is not possible with this model.
    """

    layers: list[Any]
    """The model's cache argument; the same objects for the life of the `ModelCache`."""
    reason: str | None
    """Why a pass cannot be rolled back in part, in a sentence for the user; None if it can."""

    def __init__(
        self,
        module: Module,
        *,
        slack: int = SLACK,
        kv_bits: int | None = None,
        recorder: Recorder | None = None,
        pending_rows: PendingRows | None = None,
        steps: int = 2,
    ) -> None:
        self.layers = layer_caches(module, slack, kv_bits)
        self._leaves = list(leaves(self.layers))
        self._linear = [c for c in self._leaves if type(c) in _LINEAR]
        self._windowed = [c for c in self._leaves if type(c) in _WINDOWED]
        self._counting = self._linear + self._windowed
        keyed = [layer for layer in self.layers if layer in self._counting]
        self._early = keyed[:EARLY] if on_gpu() else keyed
        self._stateful = [c for c in self._leaves if type(c) not in (*_LINEAR, *_WINDOWED)]
        self._empty = _snapshot(self._leaves)
        self._rows = 0
        self._passes: list[_Pass] = []
        self._checkpoints: list[tuple[int, Snapshot, Pending | None]] = []
        self._recorder, self._steps = recorder, steps
        self._pending_rows = pending_rows
        self._pending: Pending | None = None
        self._open = False
        self._begun = 0
        self.reason = _reason(self._stateful, recorder)

    @property
    def stateful(self) -> bool:
        """Whether a layer is."""
        return bool(self._stateful)

    @property
    def replays(self) -> bool:
        """Whether taking rows of the newest pass back makes something run again."""
        return self.stateful and self._pending is None

    @property
    def rollback_by(self) -> str | None:
        """How rows are taken back from stateful layers: pending, recorded, replayed, or off with
        the reason; None where no layer is stateful."""
        if self.reason is not None:
            return f"off: {self.reason.removeprefix(PLAIN)}"
        if self._recorder is None:
            return None
        return "pending" if self._takes(2) else self._recorder.how

    @property
    def checkpoints(self) -> bool:
        """Whether going far back takes checkpoints."""
        return bool(self._stateful or self._windowed)

    @property
    def length(self) -> int:
        """Positions held; only a hint where `torn`."""
        if self._stateful or not self._counting:
            return self._rows
        return int(self._counting[0].offset)

    @property
    def torn(self) -> bool:
        """Whether an exception left a pass half built; `rollback` or `reset` repairs it."""
        return self._open

    @property
    def sound(self) -> int:
        """Valid positions: where `torn`, those from before the pass."""
        return self._begun if self._open else self.length

    @property
    def arrays(self) -> list[mx.array]:
        """Every array held, for `mx.eval` after a prefill chunk."""
        return _arrays(self._leaves)

    @property
    def states(self) -> list[mx.array]:
        """The arrays of stateful layers."""
        return _arrays(self._stateful)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return sum(array.nbytes for array in self.arrays)

    def mark(self, rows: int = 0) -> None:
        """Begin a pass. It holds references and copies no data.

        Args:
            rows: of the pass, if it is built inside of `recording`.
        """
        if not self._open:
            self._begun = self.length
        self._open = True
        if self._stateful:
            chain = bool(self._passes) and self._passes[-1].rows == 1
            before = self._passes[1 - self._steps :] if chain else []
            self._passes = [*before, _Pass(self._rows, _snapshot(self._stateful), self._pending)]
            # Last, so that the states from before an interrupt can be put back.
            if not self._takes(rows):
                self.fold()

    @contextmanager
    def recording(self, rows: int) -> Iterator[None]:
        """Let some rows of the pass that is built inside be taken back from stateful layers."""
        if self._pending_rows is not None and self._takes(rows):
            with self._pending_rows.building(self._rows, rows, self._pending) as building:
                yield
            self._pending = building.pending()
            return
        if self._recorder is None or rows == 1:
            yield
            return
        with self._recorder.recording(rows) as tape:
            yield
        self._passes[-1].tape = tape

    def early(self, dispatch: Callable[[mx.array], None]) -> list[Any]:
        """The layers, for a pass that the device starts before it is completely built.

        Args:
            dispatch: is given the new keys of some layers, and must not wait for their evaluation.
        """
        return [_Early(it, dispatch) if it in self._early else it for it in self.layers]

    def advance(self, rows: int) -> None:
        """The pass is built, and had ``rows`` rows."""
        assert self._pending is None or self._pending.start == self._begun, "rows were left out"
        self._open = False
        self._rows += rows
        if self._passes:
            self._passes[-1].rows = rows

    def can_rollback(self, length: int) -> bool:
        """Whether `rollback` to ``length`` positions is possible."""
        if length <= 0:
            return length == 0
        for cache in self._linear:
            if cache.offset < length:
                return False
        for cache in self._windowed:
            if not cache.holds(length):
                return False
        stays = length == self._rows or self._pending_from(length) or self._pass_with(length)
        if self._stateful and not stays:
            return False
        return not self._open or (length <= self._begun and _whole(self._counting))

    def rollback(self, length: int) -> None:
        """Bring every layer to ``length`` positions.

        Raises:
            ValueError: it is not possible; then `reset` and feed the tokens again.
        """
        if not self.can_rollback(length):
            raise ValueError(f"a cache of {self.length} positions cannot go back to {length}")
        if length == 0:
            self.reset()
            return
        _trim(self._counting, length)
        back = self._pass_with(length)
        if pending := self._pending_from(length):
            self._pending = pending.keep(length - pending.start)
        elif back is not None:
            _restore(self._stateful, back.states)
            self._pending = back.pending
            if back.tape is not None and length > back.start:
                self.fold()
                back.tape.replay(length - back.start)
                back.rows, back.tape = length - back.start, None
        self._passes = [it for it in self._passes if it.start < length]
        self._checkpoints = [it for it in self._checkpoints if it[0] <= length]
        self._rows = length
        self._open = False

    def checkpoint(self) -> None:
        """Make the present length one that `return_to` can go back to.

        Where there are too many, that one goes without which the fewest positions are read again.
        """
        if self.checkpoints:
            kept = [it for it in self._checkpoints if it[0] != self.length]
            if len(kept) == CHECKPOINTS:
                gaps = [b[0] - a for a, b in zip([0, *(it[0] for it in kept)], kept, strict=False)]
                del kept[gaps.index(min(gaps))]
            state = _snapshot(self._stateful + self._windowed)
            self._checkpoints = [*kept, (self.length, state, self._pending)]

    def return_to(self, length: int) -> None:
        """Go back to the newest checkpoint within ``length`` positions, or empty every layer."""
        while self._checkpoints and self._checkpoints[-1][0] > length:
            self._checkpoints.pop()
        if not self._checkpoints or not _whole(self._linear):
            self.reset()
            return
        self._rows, state, self._pending = self._checkpoints[-1]
        _restore(self._stateful + self._windowed, state)
        _trim(self._linear, self._rows)
        self._passes = []
        self._open = False

    def fold(self) -> None:
        """Bring the states to the present length, without pending rows."""
        if self._pending is not None:
            self._pending.fold()
            self._pending = None

    def _takes(self, rows: int) -> bool:
        """Whether the rows of such a pass stay pending."""
        return self._pending_rows is not None and self._pending_rows.takes(rows)

    def _pending_from(self, length: int) -> Pending | None:
        """The pending rows, if nothing before them has to go."""
        pending = self._pending
        if pending is None or self._open or not pending.start <= length <= self._rows:
            return None
        return pending

    def _pass_with(self, length: int) -> _Pass | None:
        """The newest pass that began at ``length`` positions, or whose row there is recorded."""
        for it in reversed(self._passes):
            if it.start <= length:
                inside = it.tape is not None and length < it.start + it.rows
                return it if it.start == length or inside else None
        return None

    def compact(
        self, length: int, path: Sequence[int], rows: Sequence[tuple[mx.array, mx.array]]
    ) -> None:
        """Keep the first ``length`` positions and some of the newest pass's after them.

        Interrupted half way, the first ``length`` positions are whole.

        Args:
            path: which of the later ones stay, 0 the first, ascending.
            rows: each layer's keys and values [1, heads, n, width] as the pass appended them. To
                read them back from the cache would make MLX copy all of it before it is written.

        Raises:
            ValueError: there are no such positions, or the caches are not all plain ones.
        """
        end = length + len(path)
        moved = [at for at, row in enumerate(path) if row != at]
        if moved:
            ascending = all(a < b for a, b in zip((-1, *path), path, strict=False))
            plain = all(type(layer) is KVCache for layer in self.layers)
            if not plain or not ascending or self._open or not 0 <= length < self.length - path[-1]:
                raise ValueError(f"rows {list(path)} after {length} of {self.length} cannot stay")
            start = length + moved[0]
            for cache, (keys, values) in zip(self.layers, rows, strict=True):
                first = cache.offset - keys.shape[2]
                chosen = mx.array([length - first + row for row in path[moved[0] :]])
                cache.keys[..., start:end, :] = keys[..., chosen, :]
                cache.values[..., start:end, :] = values[..., chosen, :]
        self.rollback(end)

    def reset(self) -> None:
        """Empty every layer and free its memory."""
        _restore(self._leaves, self._empty)
        self._passes, self._checkpoints, self._pending = [], [], None
        self._rows = 0
        self._open = False


class _Early:
    """A layer's cache that makes the device start on its new keys at once."""

    def __init__(self, cache: Any, dispatch: Callable[[mx.array], None]) -> None:
        self._cache = cache
        self._dispatch = dispatch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        self._dispatch(keys)
        return self._cache.update_and_fetch(keys, values)


def _reason(stateful: list[Any], recorder: Recorder | None) -> str | None:
    names = ", ".join(sorted({type(cache).__name__ for cache in stateful}))
    if not names:
        return None
    if all(type(cache) is ArraysCache for cache in stateful):
        if recorder is not None:
            return None
        return (
            f"{PLAIN}its recurrent layers keep one running state, and a rejected token cannot be "
            "removed from it"
        )
    return f"{PLAIN}a rejected token cannot be removed from its kind of cache ({names})"


def _arrays(caches: list[Any]) -> list[mx.array]:
    held: Any = tree_flatten([vars(cache) for cache in caches])
    return [value for _, value in held if isinstance(value, mx.array)]


def _snapshot(caches: list[Any]) -> Snapshot:
    return [copy.deepcopy(vars(cache)) for cache in caches]


def _restore(caches: list[Any], snapshot: Snapshot) -> None:
    for cache, attributes in zip(caches, snapshot, strict=True):
        vars(cache).clear()
        vars(cache).update(copy.deepcopy(attributes))


def _trim(caches: list[Any], length: int) -> None:
    for cache in caches:
        if surplus := cache.offset - length:
            cache.trim(surplus)


def _whole(caches: list[Any]) -> bool:
    """Whether an interrupt found no cache between two of its own steps.

    Keys and values grow one after the other, and chunked layers share one mask, so one start.
    """
    for cache in caches:
        held: Any = tree_flatten([cache.keys, cache.values])
        if len({None if array is None else array.shape[2] for _, array in held}) > 1:
            return False
    starts = {cache.start_position for cache in caches if type(cache) is ChunkedWindowKVCache}
    return len(starts) <= 1
