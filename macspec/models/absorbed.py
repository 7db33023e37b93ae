"""Latent attention (MLA) of few rows in the absorbed form.

The cache of multi-head latent attention holds one latent vector for each position, from which the
keys and values of all heads follow by multiplication. That can be moved from the cache to the few
queries, and behind the attention (DeepSeek-V2, arXiv:2405.04434, section 2.1.2). mlx-lm's models
do so for one row and multiply the whole cache for more. In a pass of few rows their own code runs
with other multiplications: the latent goes through unchanged, and the attention to it is absorbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_lm.models.base import create_causal_mask

from ..cache import ModelCache
from ..standin import StandIn, places, replaced
from .rollback import distance

TRIED = "_tried_absorbed"
"""The attribute of a model that holds the outcome."""

ATTENTION = "scaled_dot_product_attention"
"""The global name by which mlx-lm's attention modules call MLX's."""

_PREFIX = (11, 3, 29, 17)
_ROWS = (13, 41, 7, 37, 23)
"""What a model is tried with."""


class Absorbed:
    """The latent attention of one model, which is as mlx-lm made it between passes."""

    reason: str | None = None
    """Why its passes stay as they are, in a sentence for the user."""

    def __init__(self, module: Module) -> None:
        self._held = list(places(module, _is_latent))

    def __bool__(self) -> bool:
        return bool(self._held)

    def passing(self, rows: int, length: int) -> AbstractContextManager[None]:
        """The context in which a pass of some rows after ``length`` positions is built."""
        return self.on() if self.pays(rows, length) else nullcontext()

    @contextmanager
    def on(self) -> Iterator[None]:
        """The context in which passes of several rows are absorbed."""
        with replaced(self._held, lambda module, _: StandIn(module, _Attention(module))):
            yield

    def pays(self, rows: int, length: int) -> bool:
        """Whether absorbing a pass is possible, and takes fewer multiplications.

        For each head, of latents of width w and keys and values of widths k and v: r rows that see
        s positions absorb r w (k + v) and attend in 2 r s w. Otherwise s positions are multiplied
        by w (k + v), and rows attend in r s (k + v).
        """
        if not self._held or self.reason is not None or rows < 2:
            return False
        holder, key = self._held[0]
        attention = getattr(holder[key], "stands_for", holder[key])
        width, value = (attention[name].weight.shape[-2] for name in ("embed_q", "unembed_out"))
        both, seen = attention.qk_nope_head_dim + value, length + rows
        return bool(rows * width * (both + 2 * seen) < seen * both * (width + rows))


class _Attention:
    """Calls the code of an attention module, with itself in the module's place."""

    def __init__(self, module: Any) -> None:
        self._module = module
        call: Any = type(module).__call__
        self._attend = call.__globals__[ATTENTION]
        names = {**call.__globals__, ATTENTION: self.attend}
        self._code = FunctionType(
            call.__code__, names, call.__name__, call.__defaults__, call.__closure__
        )
        self._latent: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._code(self, *args, **named)

    def embed_q(self, x: mx.array, transpose: bool = True) -> Any:
        """Instead of the heads' keys, the latent for each of them, which is not computed."""
        if transpose:
            return self._module.embed_q(x)
        self._latent = x
        return mx.broadcast_to(x, (x.shape[0], self._module.embed_q.weight.shape[0], *x.shape[2:]))

    def unembed_out(self, x: mx.array) -> Any:
        return x if x is self._latent else self._module.unembed_out(x)

    def attend(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        cache: Any,
        scale: float,
        mask: Any,
        sinks: Any = None,
    ) -> Any:
        """As mlx-lm's function; ``values`` are the latent where it was asked for."""
        latent, self._latent = self._latent, None
        if latent is None:  # a pass of one row
            return self._attend(queries, keys, values, cache, scale, mask, sinks)
        module, nope = self._module, self._module.qk_nope_head_dim
        if queries.shape[-1] > nope:  # with the rotary part, whose keys the cache holds
            turned = cache.values[..., : latent.shape[2], :]
            mask = _masked((queries[..., nope:] * scale) @ turned.swapaxes(-1, -2), mask)
        queries = module.embed_q(queries[..., :nope])
        return module.unembed_out(self._attend(queries, latent, latent, cache, scale, mask, sinks))


def _masked(scores: mx.array, mask: Any) -> mx.array:
    """Scores [1, heads, rows, positions] under a mask as MLX's attention takes it."""
    rows, positions = scores.shape[-2:]
    if mask is None:
        return scores
    seen = create_causal_mask(rows, positions - rows) if isinstance(mask, str) else mask
    return mx.where(seen, scores, mx.finfo(scores.dtype).min)


def absorbed_of(module: Any, vocabulary: int) -> Absorbed:
    """The latent attention of a model, tried once: the logits must be those of its own form."""
    known: dict[str, Any] = vars(module)
    if TRIED not in known:
        known[TRIED] = _tried(module, vocabulary)
    found: Absorbed = known[TRIED]
    return found


def _tried(module: Any, vocabulary: int) -> Absorbed:
    found = Absorbed(module)
    if not found:
        return found

    def logits(prefix: Sequence[int]) -> mx.array:
        cache = ModelCache(module).layers
        for tokens in filter(None, (prefix, _ROWS)):
            ids = mx.array([[token % vocabulary for token in tokens]], mx.uint32)
            answer: mx.array = module(ids, cache=cache)[0]
        return answer

    try:
        expected, blind = logits(_PREFIX), logits(())
        with found.on():
            absorbed = logits(_PREFIX)
        # How many times nearer the answer must be than that of rows which see no prefix.
        nearer = 100 if expected.dtype == mx.float32 else 4
        alike = distance(absorbed, expected) * nearer < distance(blind, expected)
    except Exception:  # as in ``recorder_of``
        alike = False
    if not alike:
        found.reason = (
            "verify passes of this model are slow: its latent attention cannot be absorbed for "
            "several rows"
        )
    return found


def _is_latent(module: Module) -> bool:
    return "embed_q" in module and "unembed_out" in module
