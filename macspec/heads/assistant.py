"""Gemma 4's assistants, as Google and transformers package them.

An assistant is a small model for multi-token prediction whose layers have no keys and values of
their own: they attend to those of the target's last layers, one of each kind of attention. It reads
the target's row before its output head beside the embedding of the token that followed; its own
output, made as wide again, takes that row's place in the next step. All steps of a round stand at
the place of the newest committed token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma4_text
from mlx_lm.models.cache import make_prompt_cache

from ..models.loading import Model
from ..tap import FINAL
from ..windowed import WindowedKVCache
from .guesses import Guesses, Output, check_vocabulary
from .head import Variant
from .tensors import load, width_of

ORDER = "masked_embedding.token_ordering"
"""The ids of all clusters, one after the other."""


class SharedRows:
    """What a layer of the target holds, as the cache of a layer that adds nothing to it.

    Args:
        cache: the target's.
        stop: positions that may be seen, by the last of ``rows``; each before it sees one less.
    """

    def __init__(self, cache: Any, stop: int, rows: int = 1) -> None:
        self.offset = stop - rows + 1
        """Where the first of the rows stands."""
        if hasattr(cache, "bits"):  # attention asks for them
            self.bits, self.group_size = cache.bits, cache.group_size
        window = cache.max_size if isinstance(cache, WindowedKVCache) else None
        first = 0
        if window is None:
            self._held = cache.keys_and_values()
        else:
            self._held = cache.newest(cache.offset - stop + window + rows - 2)
            first = cache.offset - self._held[0].shape[2]
        seen = mx.arange(first, cache.offset)[None]
        places = mx.arange(self.offset, stop + 1)[:, None]
        self.mask: mx.array | None = None
        if rows > 1 or cache.offset > stop:
            self.mask = seen < places
            if window is not None:
                self.mask &= seen > places - window

    def update_and_fetch(self, keys: Any, values: Any) -> Any:
        return self._held


class Assistant(nn.Module):
    """An assistant's layers, and its own output head.

    Args:
        args: of its layers.
        width: of the target's rows.
        sharers: for each layer the number of the target's layer that it attends to.
        vocabulary: the ids that it knows.
    """

    name = "mtp"
    wanted: tuple[int, ...] = (FINAL,)
    guesses: Guesses | None = None
    table = "lm_head"
    """What holds a row for each id."""

    def __init__(self, args: Any, width: int, sharers: Sequence[int], vocabulary: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.width, self.scale = width, width**0.5
        self.sharers = tuple(sharers)
        self.pre_projection = nn.Linear(2 * width, args.hidden_size, bias=False)
        self.layers = [gemma4_text.DecoderLayer(args, it) for it in range(args.num_hidden_layers)]
        self.norm = nn.RMSNorm(args.hidden_size, args.rms_norm_eps)
        self.post_projection = nn.Linear(args.hidden_size, width, bias=False)
        self[self.table] = nn.Embedding(vocabulary, args.hidden_size)

    @property
    def depths(self) -> list[Assistant]:
        return [self]

    def make_cache(self) -> list[Any]:
        return []

    def oldest(self, caches: Sequence[Any]) -> int:
        """The first row that could be stepped from with all that its layers would attend to."""
        windows = [caches[it] for it in self.sharers if isinstance(caches[it], WindowedKVCache)]
        firsts = [it.offset - it._idx + it.max_size - 2 for it in windows if it.offset > it._idx]
        return max(firsts, default=0)

    def shared(self, caches: Sequence[Any], stop: int, rows: int = 1) -> list[SharedRows]:
        """What its layers attend to: the first ``stop`` positions of the target's caches."""
        views = {it: SharedRows(caches[it], stop, rows) for it in set(self.sharers)}
        return [views[it] for it in self.sharers]

    def embedded(self, tokens: mx.array, embedding: Any) -> mx.array:
        embedded: mx.array = embedding(tokens)
        return embedded

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        return rows[0]

    def __call__(
        self, hidden: mx.array, embedded: mx.array, cache: Sequence[SharedRows]
    ) -> mx.array:
        """As any head's; ``onward`` makes of what it returns the next step's hidden rows."""
        x = self.pre_projection(mx.concatenate([embedded * self.scale, hidden], axis=-1))
        for layer, view in zip(self.layers, cache, strict=True):
            nothing = None, None
            x, _, _ = layer(x, view.mask, view, shared_kv=nothing, offset=view.offset)
        normed: mx.array = self.norm(x)
        return normed

    def onward(self, out: mx.array) -> mx.array:
        """The hidden rows [..., width] of the next step."""
        rows: mx.array = self.post_projection(out)
        return rows

    def logits(self, out: mx.array) -> mx.array:
        logits: mx.array = self.lm_head.as_linear(out)
        return logits

    def output(self, tap: Any) -> Output:
        return self.logits

    @property
    def reading(self) -> Variant:
        return {}

    def alternatives(self) -> Iterator[Variant]:
        return iter(())

    def variants(self) -> Iterator[Variant]:
        return iter(())

    def choose(self, variant: Variant) -> None:
        pass


class Clustered(Assistant):
    """One that scores only the tokens of the likeliest clusters, as those of small targets do.

    Args:
        clusters: the ids in each, [clusters, n], and how many clusters are scored.
    """

    table = "embed_tokens"

    def __init__(
        self,
        args: Any,
        width: int,
        sharers: Sequence[int],
        vocabulary: int,
        clusters: tuple[mx.array, int],
    ) -> None:
        super().__init__(args, width, sharers, vocabulary)
        self._ids, self.chosen = clusters
        self.centroids = nn.Linear(args.hidden_size, self._ids.shape[0], bias=False)

    def logits(self, out: mx.array) -> mx.array:
        # What is not scored has no chance; transformers puts it just below what is.
        best = mx.argpartition(self.centroids(out), -self.chosen, axis=-1)[:, -self.chosen :]
        ids = self._ids[best].reshape(out.shape[0], -1)
        scored = (self.embed_tokens(ids) @ out[..., None])[..., 0]
        whole = mx.full((out.shape[0], self._ids.size), -mx.inf, scored.dtype)
        return mx.put_along_axis(whole, ids, scored, axis=-1)


def build(weights: Mapping[str, mx.array], model: Model, config: Mapping[str, Any]) -> Assistant:
    """An assistant of these tensors for a target.

    Raises:
        ValueError: the tensors do not fit it; the message continues "the head".
    """
    named = {it.removeprefix("model."): array for it, array in weights.items()}
    layers = len({it.split(".")[1] for it in named if it.startswith("layers.")})
    own = {
        "num_hidden_layers": layers,
        "num_kv_shared_layers": layers,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": False,
    }
    table = "lm_head" if "lm_head.weight" in named else "embed_tokens"
    if f"{table}.weight" not in named:
        raise ValueError(f"lacks {table}.weight")
    width, vocabulary = (named[f"{it}.weight"].shape[0] for it in ("post_projection", table))
    if (row := width_of(model.config)) not in (None, width):
        raise ValueError(f"is for rows of {width} numbers, and the target's have {row}")
    check_vocabulary(vocabulary, model.width)
    settings: Any = {**config["text_config"], **own}
    args = gemma4_text.ModelArgs.from_dict(settings)  # type: ignore[no-untyped-call]
    base = args, width, _sharers(args, model.module), vocabulary
    if ORDER in named:
        head: Assistant = Clustered(*base, _clusters(named, vocabulary, config))
    else:
        head = Assistant(*base)
    kept = {
        it.removeprefix("masked_embedding.").replace(f"{table}.", f"{head.table}."): array
        for it, array in named.items()
        if it.startswith(f"{table}.")
        or not it.startswith(("embed_tokens.", "masked_embedding.token"))
    }
    load(head, kept)
    return head


def _clusters(
    named: Mapping[str, mx.array], vocabulary: int, config: Mapping[str, Any]
) -> tuple[mx.array, int]:
    """The ids [clusters, n] of a vocabulary, and how many clusters are scored."""
    ids = named[ORDER].astype(mx.int32).flatten()
    count, chosen = int(config["num_centroids"]), int(config["centroid_intermediate_top_k"])
    if not 0 < chosen <= count or not mx.array_equal(mx.sort(ids), mx.arange(vocabulary)):
        raise ValueError("orders its vocabulary in a way that cannot be read")
    if vocabulary % count:
        raise ValueError(f"divides {vocabulary} ids into {count} clusters")
    return ids.reshape(count, -1), chosen


def _sharers(args: Any, target: Any) -> list[int]:
    """For each layer the last of the target's that holds keys and values for its kind."""
    held = target.layers[: len(make_prompt_cache(target))]
    last = {getattr(it, "layer_type", None): at for at, it in enumerate(held)}
    for at, kind in enumerate(args.layer_types):
        if kind not in last:
            raise ValueError("attends to a Gemma 4 target, and this is none")
        own, other = gemma4_text.Attention(args, at), held[last[kind]].self_attn
        size, groups = getattr(other, "head_dim", None), getattr(other, "n_kv_heads", None)
        if size != own.head_dim or not groups or own.n_heads % groups:
            raise ValueError(
                f"attends with {own.n_heads} heads of {own.head_dim} numbers, and the target has "
                f"{groups} of {size}"
            )
    return [last[it] for it in args.layer_types]
