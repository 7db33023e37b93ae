"""A model together with the tokens it has read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from ..cache import ModelCache
from ..kernels import Kernels

PREFILL_CHUNK = 512
"""Rows of one prefill pass, as in mlx-lm."""

PASS_TAIL = 16
"""Unread tokens that a pass takes in along with its own rows; more of them are prefilled first."""


class CachedModel:
    """A model and its cache; ``length`` tokens of the sequence are in it.

    Args:
        module: a model of mlx-lm.
        vocabulary: ids that exist; wider logits are cut, narrower ones padded with -inf.
        kv_bits: quantize keys and values to this many bits.
        kernels: what passes with logits are computed with; None: MLX's own.
    """

    def __init__(
        self,
        module: Any,
        vocabulary: int,
        *,
        kv_bits: int | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self.module = module
        self.kernels = kernels or Kernels()
        self.vocabulary = vocabulary
        self.cache = ModelCache(module, kv_bits=kv_bits)

    @property
    def length(self) -> int:
        """Positions held."""
        return self.cache.length

    def read(self, tokens: Sequence[int]) -> None:
        """Take in a chunk of tokens whose logits nobody needs; dispatched, not awaited."""
        self.cache.mark()
        self.module(mx.array(list(tokens), mx.uint32)[None], cache=self.cache.layers)
        self.cache.advance(len(tokens))
        mx.async_eval(self.cache.arrays)

    def unread(self, tokens: Sequence[int]) -> mx.array:
        """Read all but the last of the committed tokens, in chunks, and return those.

        Returns:
            [n] uint32, 0 < n <= ``PASS_TAIL``.
        """
        while len(tokens) - self.length > PASS_TAIL:
            self.read(tokens[self.length : -1][:PREFILL_CHUNK])
        return mx.array(list(tokens[self.length :]), mx.uint32)

    def logits(
        self, tokens: mx.array, rows: int, dispatch: Callable[..., None] | None = None
    ) -> mx.array:
        """Take in tokens [n] and return the logits [rows, vocabulary] after the last ``rows``.

        Args:
            dispatch: starts an evaluation; given, the device begins while the pass is being built.
        """
        self.cache.mark()
        layers = self.cache.layers if dispatch is None else self.cache.early(dispatch)
        with self.kernels.passing(tokens.shape[0]):
            logits: mx.array = self.module(tokens[None], cache=layers)[0, -rows:]
        self.cache.advance(tokens.shape[0])
        return self.fitted(logits)

    def fitted(self, logits: mx.array) -> mx.array:
        """Logits [rows, width of the model] as [rows, vocabulary]."""
        missing = self.vocabulary - logits.shape[-1]
        if missing > 0:
            return mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
        return logits[:, : self.vocabulary] if missing < 0 else logits

    def rollback(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens, or all where that is impossible."""
        if self.cache.length <= length and not self.cache.torn:
            return
        length = min(length, self.cache.sound)
        if self.cache.can_rollback(length):
            self.cache.rollback(length)
        else:
            self.cache.reset()
