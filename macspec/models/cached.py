"""A model together with the tokens it has read, and trees of drafted tokens verified in one pass.

A model of mlx-lm knows only chains. It asks its caches which positions a row may see, and its
rotary embeddings to turn a row to its position. For one pass of a tree both answer for the tree: a
row sees the committed tokens, itself and its ancestors, and is turned to the position that it would
have in its own branch. The caches hide their number of positions meanwhile, so a model that uses it
for anything else fails when it is tried, not later in a text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx_lm.models.cache import KVCache

from ..cache import ModelCache
from ..kernels import Kernels
from ..tap import HiddenRows, Tap
from ..verification import Tree
from .absorbed import absorbed_of
from .causal import why_not_causal
from .prefill import PrefillChunk
from .rollback import distance, pending_rows_of, recorder_of

PASS_TAIL = 16
"""Unread tokens that a pass takes in along with its own rows; more of them are prefilled first."""


class CachedModel:
    """A model and its cache, which holds ``length`` tokens of the sequence.

    Args:
        module: a model of mlx-lm.
        vocabulary: ids that exist; wider logits are cut, narrower ones padded with -inf.
        kv_bits: quantize keys and values to this many bits.
        kernels: for passes that return logits; None: MLX's own.
        steps: passes of one row that can be taken back from stateful layers.
        chunk: of prefill; None: the least.
    """

    def __init__(
        self,
        module: Any,
        vocabulary: int,
        *,
        kv_bits: int | None = None,
        kernels: Kernels | None = None,
        steps: int = 2,
        chunk: PrefillChunk | None = None,
    ) -> None:
        self.module = module
        self.chunk = chunk or PrefillChunk()
        self.kernels = kernels or Kernels()
        self.vocabulary = vocabulary
        self._recorder = recorder_of(module, vocabulary)
        pending_rows = pending_rows_of(module, vocabulary, self._recorder, self.kernels.recurrences)
        self.cache = ModelCache(
            module, kv_bits=kv_bits, recorder=self._recorder, pending_rows=pending_rows, steps=steps
        )
        if self.cache.reason is None:
            self.cache.reason = why_not_causal(module, vocabulary)
        self.hidden: HiddenRows | None = None
        """What its passes hand out beside logits, for a head that reads it."""
        self.absorbed = absorbed_of(module, vocabulary)

    @property
    def length(self) -> int:
        """Positions held."""
        return self.cache.length

    def show(self, wanted: Sequence[int]) -> HiddenRows:
        """From now on, keep the hidden rows of its passes; see ``Tap``, also for a refusal."""
        self.hidden = HiddenRows(Tap(self.module, wanted, self._recorder))
        return self.hidden

    def hide(self) -> None:
        """Keep no hidden rows any more."""
        self.hidden = None

    def trees(self) -> TreePass:
        """Passes over trees, after a trial."""
        return TreePass(self)

    def entering(self, tokens: mx.array) -> mx.array:
        """The tokens [n] of a pass as the model gets them."""
        return tokens

    def showing(self) -> AbstractContextManager[None]:
        """Keep the hidden rows of the pass that is built inside, if they are wanted."""
        if self.hidden is None or self.hidden.tap.reason is not None:
            return nullcontext()
        return self.hidden.noting(self.length)

    def read(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        """Read a chunk of tokens whose logits are not needed; started, not awaited.

        Args:
            boundaries: positions, ascending; it ends at the first that is inside of it, where the
                cache gets a checkpoint.
        """
        stop = next((it for it in boundaries if it > self.length), 0) - self.length
        if 0 < stop <= len(tokens):
            tokens = tokens[:stop]
        self.cache.mark()
        with self.showing(), self.absorbed.passing(len(tokens), self.length):
            ids = self.entering(mx.array(list(tokens), mx.uint32))
            self.module(ids[None], cache=self.cache.layers)
        self.cache.advance(len(tokens))
        mx.async_eval(self.cache.arrays, self.hidden.arrays if self.hidden else [])
        if self.length in boundaries:
            self.cache.checkpoint()

    def read_next(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        """Read a chunk of the committed tokens that it has not read, but not the last of them."""
        self.read(tokens[self.length : -1][: self.chunk.rows], boundaries)

    def unread(self, tokens: Sequence[int]) -> mx.array:
        """Read all but the last of the committed tokens, in chunks, and return those.

        Returns:
            [n] uint32, 0 < n <= ``PASS_TAIL``.
        """
        while len(tokens) - self.length > PASS_TAIL:
            self.read_next(tokens)
        return mx.array(list(tokens[self.length :]), mx.uint32)

    def logits(
        self, tokens: mx.array, rows: int, dispatch: Callable[..., None] | None = None
    ) -> mx.array:
        """Take in tokens [n] and return the logits [rows, vocabulary] after the last ``rows``.

        Args:
            dispatch: starts an evaluation; with it the device begins while the pass is being built.
        """
        count = tokens.shape[0]
        self.cache.mark(count)
        layers = self.cache.layers if dispatch is None else self.cache.early(dispatch)
        absorbed = self.absorbed.passing(count, self.length)
        with self.kernels.passing(count), self.cache.recording(count), self.showing(), absorbed:
            logits: mx.array = self.module(self.entering(tokens)[None], cache=layers)[0, -rows:]
        self.cache.advance(count)
        return self.fitted(logits)

    def fitted(self, logits: mx.array) -> mx.array:
        """Logits [rows, width of the model] as [rows, vocabulary]."""
        missing = self.vocabulary - logits.shape[-1]
        if missing > 0:
            return mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
        return logits[:, : self.vocabulary] if missing < 0 else logits

    def rollback(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens; where that is impossible, after the
        newest checkpoint before them, or everything."""
        if self.cache.length > length or self.cache.torn:
            length = min(length, self.cache.sound)
            if self.cache.can_rollback(length):
                self.cache.rollback(length)
            else:
                self.cache.return_to(length)
        if self.hidden is not None:
            self.hidden.rollback(self.length)

    def recall(self) -> None:
        """Go back one token more where the newest hidden row, which a head drafts from, was let go
        of: it is read again with the next tokens."""
        gone = self.hidden is not None and self.hidden.stop < self.length
        if gone and self.length > 1 and not self.cache.checkpoints:
            self.rollback(self.length - 1)


_PREFIX = (11, 3, 29, 17)
_UNREAD = (23, 5)
_NODES = (13, 41, 7, 37)
_NEXT = (19,)
_PARENTS = (-1, 0, 0, 2)
_BRANCHES = ((0, 1), (0, 2, 3))
"""What a model is tried with: ids, and a tree that is no chain and not in order of depth."""


class TreePass:
    """Passes over trees, for one model and its cache.

    Building one tries the model on a tree of 5 rows, with a cache of its own. Passes over chains
    are not affected, and between passes the model is as mlx-lm made it.
    """

    reason: str | None
    """Why trees are off for this model, in a sentence for the user; None if they are on."""

    def __init__(self, model: CachedModel) -> None:
        self._model = model
        self.places: mx.array | None = None
        """int32 [rows]: where in the text each row of the pass that is being built belongs."""
        self._nodes_at = 0
        self._appended: list[tuple[mx.array, mx.array]] = []
        found = _ropes(model.module)
        self._ropes = [(holder, key, _Rope(rope, self)) for holder, key, rope in found]
        self.reason = self._refusal()

    def logits(self, unread: mx.array, tree: Tree) -> mx.array:
        """Take in the unread committed tokens and a tree of N nodes.

        Args:
            unread: [n] ids, 0 < n.
            tree: the nodes; they follow the unread tokens, in their order.

        Returns:
            [N + 1, vocabulary]: after the last committed token and after each node.

        Raises:
            ValueError: trees are off for this model.
        """
        if self.reason is not None:
            raise ValueError(self.reason)
        tokens = self._model.entering(mx.concatenate([unread, tree.tokens]))
        with self._model.showing():
            logits = self._run(self._model.cache, tokens, tree.depths, tree.sees)
        return self._model.fitted(logits)

    def keep(self, path: Sequence[int]) -> None:
        """Of the newest pass's nodes, leave those of a branch in the cache, ascending.

        Costs nothing where they are the first nodes.

        Raises:
            ValueError: the cache has been changed since the pass.
        """
        if self._model.hidden is not None:
            self._model.hidden.compact(self._nodes_at, path)
        self._model.cache.compact(self._nodes_at, path, self._appended)
        self._appended = []

    def _run(
        self, cache: ModelCache, tokens: mx.array, depths: Sequence[int], sees: Any
    ) -> mx.array:
        """Logits [N + 1, width] of tokens [n + N], the last N of them nodes."""
        held, rows, nodes = cache.length, tokens.shape[0], len(depths)
        unread = rows - nodes
        steps = [*range(unread), *(unread - 1 + depth for depth in depths)]
        among = np.tri(rows, dtype=np.bool_)
        among[unread:, unread:] = sees
        mask = mx.concatenate([mx.ones((rows, held), mx.bool_), mx.array(among)], axis=1)
        bits = [sum(1 << int(row) for row in np.flatnonzero(line)) for line in among]
        places = held + mx.array(steps, mx.int32)
        views = [_Layer(layer, mask, held, places) for layer in cache.layers]
        cache.mark()
        try:
            self.places = places
            for holder, key, rope in self._ropes:
                holder[key] = rope
            absorbed = self._model.absorbed.passing(rows, held)
            with self._model.kernels.passing(rows, bits, mask), absorbed:
                logits: mx.array = self._model.module(tokens[None], cache=views)[0, -(nodes + 1) :]
        finally:
            # First: without positions, wrappers that an interrupt leaves in place do nothing.
            self.places = None
            for holder, key, rope in self._ropes:
                holder[key] = rope.rope
        cache.advance(rows)
        self._nodes_at = held + unread
        self._appended = [view.appended for view in views]
        return logits

    def _refusal(self) -> str | None:
        layers = self._model.cache.layers
        others = sorted({type(layer).__name__ for layer in layers if type(layer) is not KVCache})
        if others:
            return (
                "trees are off: this model's kind of cache cannot keep a single branch "
                f"({', '.join(others)})"
            )
        try:
            alike = self._tried()
            self._appended = []
        except Exception as error:
            return (
                f"trees are off: this model cannot run the rows of a tree ({type(error).__name__})"
            )
        if not alike:
            return "trees are off: this model's logits differ between a tree and its branches"
        return None

    def _tried(self) -> bool:
        """Whether a tree of 5 rows, and a row after its kept branch, are as in chains.

        Rounding differs with the order of the rows, how much depends on model and machine. So the
        measure is the model's own answer to a tree whose rows see, or stand at, the wrong places.
        """
        branches = [self._chain(branch) for branch in _BRANCHES]
        expected = mx.concatenate([branches[0][:3], branches[1][2:]])
        tree = Tree(self._ids(_NODES), _PARENTS)
        in_order = range(1, len(_NODES) + 1)
        all_before = np.tri(len(_NODES), dtype=np.bool_)
        errors = [
            distance(self._tree(depths, sees), expected)
            for depths, sees in (
                (tree.depths, tree.sees),
                (in_order, tree.sees),
                (tree.depths, all_before),
            )
        ]
        # How many times nearer the tree must be to its branches than those with a mistake.
        nearer = 100 if expected.dtype == mx.float32 else 4
        return errors[0] * nearer < min(errors[1:])

    def _chain(self, branch: Sequence[int]) -> mx.array:
        """Logits after the last unread token, each of the branch and the next one."""
        cache = self._begun()
        tokens = [*_UNREAD, *(_NODES[node] for node in branch)]
        # As many rows as the tree has, so that both take the same kernels.
        filler = _NODES[: len(_UNREAD) + len(_NODES) - len(tokens)]
        logits = self._fed(cache, (*tokens, *filler))[len(_UNREAD) - 1 : len(tokens)]
        cache.rollback(cache.length - len(filler))
        return mx.concatenate([logits, self._fed(cache, _NEXT)])

    def _tree(self, depths: Sequence[int], sees: Any) -> mx.array:
        """Logits after the last unread token, each node and, on the last branch, the next one."""
        cache = self._begun()
        logits = self._run(cache, self._ids((*_UNREAD, *_NODES)), depths, sees)
        cache.compact(self._nodes_at, _BRANCHES[-1], self._appended)
        return mx.concatenate([logits, self._fed(cache, _NEXT)])

    def _begun(self) -> ModelCache:
        cache = ModelCache(self._model.module)
        self._fed(cache, _PREFIX)
        return cache

    def _fed(self, cache: ModelCache, tokens: Sequence[int]) -> mx.array:
        cache.mark()
        logits: mx.array = self._model.module(self._ids(tokens)[None], cache=cache.layers)[0]
        cache.advance(len(tokens))
        return logits

    def _ids(self, tokens: Sequence[int]) -> mx.array:
        return mx.array([token % self._model.vocabulary for token in tokens], mx.uint32)


class _Layer:
    """A layer's cache as the model sees it in a tree's pass: without the number of positions."""

    offset = None
    appended: tuple[mx.array, mx.array]

    def __init__(self, cache: Any, mask: mx.array, held: int, places: mx.array) -> None:
        self._cache = cache
        self._mask = mask
        self._held = held
        self._places = places

    def make_mask(
        self, rows: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array:
        if not window_size:
            return self._mask
        columns = mx.concatenate([mx.arange(self._held, dtype=mx.int32), self._places])
        return self._mask & (self._places[:, None] < columns[None] + window_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        self.appended = self.keys, _ = keys, values  # a pipeline ties what it sends to the keys
        return self._cache.update_and_fetch(keys, values)

    def keys_and_values(self) -> Any:
        return self._cache.keys_and_values()


class _Rope:
    """A rotary embedding that turns every row of a tree's pass to the row's own place."""

    def __init__(self, rope: Module, owner: TreePass) -> None:
        self.rope: Any = rope
        self._owner = owner

    def __call__(self, x: mx.array, offset: Any = 0) -> Any:
        places = self._owner.places
        if places is None:
            return self.rope(x, offset)
        # Offsets go by batch entry: x [1, heads, rows, width] becomes [rows, heads, 1, width].
        return self.rope(x.transpose(2, 1, 0, 3), offset=places).transpose(2, 1, 0, 3)


def _ropes(node: Any) -> Iterator[tuple[Any, Any, Module]]:
    """Every leaf module below ``node`` that is called with an offset, with its holder and key."""
    for key, child in enumerate(node) if isinstance(node, list) else node.items():
        if isinstance(child, _Rope):
            yield node, key, child.rope
        elif isinstance(child, Module) and not child.children() and _takes_offset(child):
            yield node, key, child
        elif isinstance(child, dict | list):
            yield from _ropes(child)


def _takes_offset(module: Module) -> bool:
    return "offset" in inspect.signature(type(module).__call__).parameters
