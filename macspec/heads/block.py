"""Block drafters: DFlash (arXiv:2602.06036), DSpark (arXiv:2607.05147) and DFlash 2.

One pass over a block of rows, the newest token and then masks, guesses all tokens of the block. Its
rows attend to each other and to the target's hidden rows before them, which are projected once,
when their tokens are committed, and cached as keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache
from mlx_lm.models.rope_utils import initialize_rope

from ..models.loading import Model
from ..tap import FINAL
from .blockform import CONTEXT, Form, form_of
from .blocktops import GroupedConv, Markov, Noised, Selector
from .guesses import Guesses, Output, guesses_of, output_of
from .head import Variant
from .tensors import load, width_of

Weights = Mapping[str, mx.array]

ALL = slice(0, None)


class _Attention(nn.Module):
    """Attention of a block over the context and itself."""

    def __init__(self, width: int, form: Form, weights: Weights, at: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        start = f"layers.{at}.self_attn."

        def rows(name: str) -> int:
            return int(weights[f"{start}{name}.weight"].shape[0])

        def biased(name: str) -> bool:
            return f"{start}{name}.bias" in weights

        self.size = rows("k_norm")
        self.heads, self.kv_heads = form.heads, rows("k_proj") // self.size
        self.gated = rows("q_proj") == 2 * self.heads * self.size
        self.window, self.causal = form.windows[at], form.causal[at]
        self.scale = self.size**-0.5
        self.q_proj = nn.Linear(width, rows("q_proj"), bias=biased("q_proj"))
        self.k_proj = nn.Linear(width, rows("k_proj"), bias=biased("k_proj"))
        if f"{start}v_proj.weight" in weights:
            self.v_proj = nn.Linear(width, rows("v_proj"), bias=biased("v_proj"))
        else:  # as Gemma 4 has it: values are the keys before their norm, with one of their own
            self.scale = 1.0
        self.o_proj = nn.Linear(self.heads * self.size, width, bias=biased("o_proj"))
        self.q_norm = nn.RMSNorm(self.size, form.eps)
        self.k_norm = nn.RMSNorm(self.size, form.eps)
        if f"{start}attention_sink_bias" in weights:
            self.attention_sink_bias = mx.zeros(self.heads)
        self._form = form
        self.turn(form.traditional, form.rotated)

    def turn(self, traditional: bool, rotated: float) -> None:
        """Turn positions this way."""
        scaling: Any = self._form.scaling
        self._rope = initialize_rope(
            int(self.size * rotated), self._form.theta, traditional, scaling
        )

    def read(self, rows: mx.array, cache: Any) -> tuple[mx.array, mx.array]:
        """Cache the keys and values of rows [1, n, width]; return all."""
        keys = self.k_proj(rows).reshape(1, rows.shape[1], self.kv_heads, -1)
        if "v_proj" in self:
            values = self.v_proj(rows).reshape(keys.shape)
        else:
            values = mx.fast.rms_norm(keys, None, self.k_norm.eps)
        keys = self._rope(self.k_norm(keys).transpose(0, 2, 1, 3), offset=cache.offset)
        found: tuple[mx.array, mx.array] = cache.update_and_fetch(
            keys, values.transpose(0, 2, 1, 3)
        )
        return found

    def __call__(self, x: mx.array, cache: Any, wanted: slice) -> mx.array:
        """What the ``wanted`` of rows [1, n, width] get; all are cached."""
        start, asking = cache.offset, x[:, wanted]
        first, count = wanted.start, asking.shape[1]
        queries = self.q_proj(asking).reshape(1, count, self.heads, -1)
        gate = None
        if self.gated:
            queries, gate = mx.split(queries, 2, axis=-1)
        queries = self._rope(self.q_norm(queries).transpose(0, 2, 1, 3), offset=start + first)
        keys, values = self.read(x, cache)
        seen = min(start, CONTEXT if self.window is None else self.window - 1)
        keys, values = keys[:, :, start - seen :], values[:, :, start - seen :]
        out = mx.fast.scaled_dot_product_attention(
            queries,
            keys,
            values,
            scale=self.scale,
            mask=self._mask(seen, x.shape[1], wanted),
            sinks=self.attention_sink_bias if "attention_sink_bias" in self else None,
        )
        out = out.transpose(0, 2, 1, 3)
        if gate is not None:
            out = out * mx.sigmoid(gate)
        mixed: mx.array = self.o_proj(out.reshape(1, count, -1))
        return mixed

    def _mask(self, seen: int, count: int, wanted: slice) -> mx.array | None:
        """Which of ``seen`` rows of context and ``count`` of the block the ``wanted`` ones of the
        block attend to."""
        full = self.window is None or seen + count <= self.window
        if full and not self.causal:
            return None
        rows, columns = seen + mx.arange(count)[wanted, None], mx.arange(seen + count)[None]
        mask = columns > rows - (self.window or seen + count)
        return mask & (columns <= rows) if self.causal else mask


class _MLP(nn.Module):
    def __init__(self, width: int, inner: int, gelu: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.gelu = gelu

    def __call__(self, x: mx.array) -> mx.array:
        bent = nn.gelu_approx if self.gelu else nn.silu
        out: mx.array = self.down_proj(bent(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    """A layer as Qwen 3 has it; with norms behind its parts as Gemma does, or convolutions around
    them, where the files hold those."""

    def __init__(self, width: int, form: Form, weights: Weights, at: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        start = f"layers.{at}."
        self.self_attn = _Attention(width, form, weights, at)
        self.gemma = f"{start}pre_feedforward_layernorm.weight" in weights
        inner = weights[f"{start}mlp.gate_proj.weight"].shape[0]
        self.mlp = _MLP(width, inner, self.gemma)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if self.gemma:
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
            self.layer_scalar = mx.ones(1)
        for name in norms:
            self[name] = nn.RMSNorm(width, form.eps)
        for name in ("attention_conv", "mlp_conv"):
            if (base := weights.get(f"{start}{name}.base_kernel")) is not None:
                rows = weights[f"{start}{name}.kernel_projection.weight"].shape[0]
                self[name] = GroupedConv(base.shape, rows // (2 * base.shape[1]))

    def __call__(self, x: mx.array, cache: Any, wanted: slice = ALL) -> mx.array:
        """The ``wanted`` of rows [1, n, width]; of the others only keys and values are made."""
        h = self.input_layernorm(x)
        x = x[:, wanted] + self._around("attention_conv", h, self._attended, cache, wanted)
        name = "pre_feedforward_layernorm" if self.gemma else "post_attention_layernorm"
        x = x + self._around("mlp_conv", self[name](x), self._fed)
        return x * self.layer_scalar if self.gemma else x

    def _attended(self, x: mx.array, cache: Any, wanted: slice) -> mx.array:
        out: mx.array = self.self_attn(x, cache, wanted)
        return self.post_attention_layernorm(out) if self.gemma else out

    def _fed(self, x: mx.array) -> mx.array:
        out: mx.array = self.mlp(x)
        return self.post_feedforward_layernorm(out) if self.gemma else out

    def _around(self, name: str, x: mx.array, part: Any, *rest: Any) -> mx.array:
        """A part of the layer, between the two convolutions of that name where it has them."""
        if name not in self:
            out: mx.array = part(x, *rest)
            return out
        x, added = self[name].prepare(x)
        out = part(x, *rest)
        convolved: mx.array = self[name].finish(out, added[:, : out.shape[1]])
        return convolved


class Block(nn.Module):
    """A block drafter.

    Args:
        name: the drafting method.
        weights: under the names of its files; what it has of parts, they tell.
        model: the target.
    """

    def __init__(self, name: str, form: Form, weights: Weights, model: Model) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        width = weights["norm.weight"].shape[0]
        self.name, self.form, self.first = name, form, form.first
        self.wanted = (FINAL, *form.taps)
        self.shift = 0.0
        """What was added to the stored weights of its norms."""
        self.scale = form.scale
        self.traditional, self.rotated = form.traditional, form.rotated
        self.fc = nn.Linear(
            len(form.taps) * (width_of(model.config) or width), width, bias="fc.bias" in weights
        )
        self.hidden_norm = nn.RMSNorm(width, form.eps)
        self.layers = [_Layer(width, form, weights, at) for at in range(len(form.windows))]
        self.norm = nn.RMSNorm(width, form.eps)
        self.guesses: Guesses | None = None
        self.vocabulary = model.width
        if (own := weights.get("embed_tokens.weight")) is not None:
            self.embed_tokens = nn.Embedding(own.shape[0], width)
        if (own := weights.get("lm_head.weight")) is not None:
            self.lm_head = nn.Linear(width, own.shape[0], bias=False)
        self._add_tops(width, weights)

    def _add_tops(self, width: int, weights: Weights) -> None:
        rank = self.form.rank
        if (after := weights.get("markov_head.markov_w2.weight")) is not None:
            before = weights["markov_head.markov_w1.weight"]
            if "markov_head.markov_w1.scales" not in weights:
                rank = before.shape[1]
            self.markov_head = Markov(before.shape[0], after.shape[0], rank)
        if "log_snr_embed.fc1.weight" in weights:
            self.log_snr_embed = Noised(width)
        if (book := weights.get("candidate_selector.successor_codebook")) is not None:
            self.candidate_selector = Selector(
                width, book.shape[0], book.shape[1], self.form.candidates
            )

    @property
    def targets(self) -> mx.array | None:
        """The target's ids that it can guess; None: all."""
        return None if self.guesses is None else self.guesses.targets

    @property
    def places(self) -> mx.array | None:
        """For each id of the target which guess it is, or how many there are; None: the same."""
        return None if self.guesses is None else self.guesses.places

    @property
    def depths(self) -> list[Block]:
        """Itself: one pass guesses all."""
        return [self]

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(self.norm.weight.shape[0])

    @property
    def size(self) -> int:
        """Tokens that a block guesses."""
        return self.form.block - self.first

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers]  # type: ignore[no-untyped-call]

    def enter(self, rows: Sequence[mx.array]) -> mx.array:
        """Rows of context, [n, width], from rows of the target, [n, width] for each wanted one."""
        entered: mx.array = self.hidden_norm(self.fc(mx.concatenate(list(rows[1:]), axis=-1)))
        return entered

    def read(self, rows: mx.array, cache: Sequence[Any]) -> None:
        """Cache rows of context, [1, n, width]."""
        for layer, own in zip(self.layers, cache, strict=True):
            layer.self_attn.read(rows, own)

    def embedded(self, tokens: mx.array, embedding: Any) -> mx.array:
        """Rows [n, width] for the ids [n] of a block.

        Args:
            embedding: the target's.
        """
        own = self.embed_tokens if "embed_tokens" in self else embedding
        embedded: mx.array = own(tokens)
        embedded = embedded if self.scale == 1 else embedded * self.scale
        if "log_snr_embed" in self:
            embedded = embedded + self.log_snr_embed(len(tokens)).astype(embedded.dtype)
        return embedded

    def tokens(self, anchor: int, guesses: int) -> mx.array:
        """The ids of a block behind the token ``anchor`` of which so many guesses are needed."""
        # Later rows change earlier ones, except where all layers are causal.
        rows = self.first + guesses if all(self.form.causal) else self.form.block
        return mx.array([anchor] + [self.form.mask] * (rows - 1), mx.uint32)

    def __call__(
        self,
        hidden: mx.array | None,
        embedded: mx.array,
        cache: Sequence[Any],
        guesses: int | None = None,
    ) -> mx.array:
        """Read rows of context [1, n, width], if any, and a block [1, m, width] behind all of them.

        Args:
            guesses: how many are needed; None: all.

        Returns:
            The normed rows that guess, [1, guesses, width]. The block's keys and values are left in
            the caches, to be taken back.
        """
        if hidden is not None:
            self.read(hidden, cache)
        stop = embedded.shape[1] if guesses is None else self.first + guesses
        x = embedded
        for layer, own in zip(self.layers[:-1], cache, strict=False):
            x = layer(x, own)
        # Convolutions reach back to the block's first row.
        start = 0 if "mlp_conv" in self.layers[-1] else self.first
        x = self.layers[-1](x, cache[-1], slice(start, stop))
        normed: mx.array = self.norm(x[:, self.first - start :])
        return normed

    def output(self, tap: Any) -> Output:
        """The output head of its rows: its own, or what it needs of the target's."""
        return output_of(self.get("lm_head"), self.guesses, tap)

    def logits(self, rows: mx.array, output: Output) -> mx.array:
        """Logits [n, guesses] of rows [n, width], before what the token before adds to them.

        Args:
            output: of the rows; see ``output``.
        """
        logits = output(rows)
        if self.form.multiplier != 1:
            logits = logits * self.form.multiplier
        if (cap := self.form.softcap) is not None:
            logits = mx.tanh(logits.astype(mx.float32) / cap) * cap
        return logits

    @property
    def walks(self) -> bool:
        """Whether a guess depends on the one before."""
        return "candidate_selector" in self or "markov_head" in self

    def prepared(self, rows: mx.array, logits: mx.array) -> tuple[mx.array, ...]:
        """What ``guess`` takes for each of the rows, [n, ...] each."""
        if "candidate_selector" in self:
            parts: tuple[mx.array, ...] = self.candidate_selector.prepare(
                rows, logits, self.targets
            )
            return parts
        return (logits if "markov_head" in self else self._whole(logits),)

    def guess(self, previous: mx.array, parts: Sequence[mx.array]) -> mx.array:
        """The logits [1, V] of a row, from its parts [1, ...], after a token [1]."""
        if "candidate_selector" in self:
            chosen: mx.array = self.candidate_selector(previous, parts, self.vocabulary)
            return chosen
        (logits,) = parts
        return self._whole(logits + self.markov_head(previous)) if self.walks else logits

    def _whole(self, logits: mx.array) -> mx.array:
        """Logits [n, guesses] as [n, V]: what it cannot guess has no chance."""
        return logits if self.guesses is None else self.guesses.whole(logits)

    def variants(self) -> Iterator[Variant]:
        """Other readings of its files, one change each."""
        if self.form.block > 1:
            yield {"first": 1 - self.first}
        yield {"traditional": not self.traditional}
        yield {"rotated": 0.25 if self.rotated == 1 else 1.0}
        yield {"shift": 0.0 if self.shift else 1.0}
        yield {"scale": 1.0 if self.scale != 1 else self.width**0.5}

    def choose(self, variant: Variant) -> None:
        """Read the files that way."""
        if (shift := variant.get("shift", self.shift)) != self.shift:
            parts: Any = self.modules()  # type: ignore[no-untyped-call]
            for part in parts:
                if isinstance(part, nn.RMSNorm):
                    part.weight = part.weight + (shift - self.shift)
        for name, value in variant.items():
            setattr(self, name, value)
        for layer in self.layers:
            layer.self_attn.turn(self.traditional, self.rotated)


def build(weights: Weights, model: Model, config: Mapping[str, Any]) -> Block:
    """A block drafter of these tensors for a target.

    Raises:
        ValueError: they do not fit it; the message continues "the head".
    """
    named = {it.removeprefix("model."): array for it, array in weights.items()}
    # The controller foretells what is accepted as well as DSpark's confidence head does.
    named = {name: it for name, it in named.items() if not name.startswith("confidence_head.")}
    named.pop("t2d", None)
    offsets = named.pop("d2t", None)
    for part in ("fc.weight", "norm.weight", "hidden_norm.weight"):
        if part not in named:
            raise ValueError(f"lacks {part}")
    module: Any = model.module
    form = form_of(config, named, len(module.layers), model.width)
    if (text := _ordinary(form.mask, model.tokenizer)) is not None:
        note = f"marks what it guesses by {text!r}, a token of texts: it may be another family's"
        form = replace(form, notes=(*form.notes, note))
    for at in range(len(form.windows)):
        for part in ("self_attn.k_norm", "self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj"):
            if f"layers.{at}.{part}.weight" not in named:
                raise ValueError(f"lacks layers.{at}.{part}.weight")
    own, width = named["fc.weight"], width_of(model.config)
    if "fc.scales" not in named and width not in (None, own.shape[1] // len(form.taps)):
        raise ValueError(f"reads {own.shape[1]} numbers of {len(form.taps)} layers of {width}")
    if "embed_tokens.weight" not in named and width not in (None, own.shape[0]):
        raise ValueError(f"is for rows of {own.shape[0]} numbers, and the target's have {width}")
    if "markov_head.markov_w1.weight" not in named and "markov_head.markov_w2.weight" in named:
        raise ValueError("lacks markov_head.markov_w1.weight")
    name = "dspark" if "markov_head.markov_w1.weight" in named else "dflash"
    head = Block(name, form, named, model)
    _map_guesses(head, named, offsets)
    load(head, named)
    gemma = str(model.config.get("model_type", "")).startswith("gemma")
    # An embedding of its own is scaled only by layers that are Gemma's, too.
    scaled = head.layers[0].gemma if "embed_tokens.weight" in named else gemma
    if scaled and form.scale == 1:
        head.scale = own.shape[0] ** 0.5
    means = [float(mx.mean(named[f"{it}.weight"])) for it in ("hidden_norm", "norm")]
    if form.offset_norms and max(means) < 0.5:
        head.choose({"shift": 1.0})
    return head


def _ordinary(token: int, tokenizer: Any) -> str | None:
    """The text of a token that texts may hold; None of one that stands for something else."""
    if token in tokenizer.added_tokens_decoder:
        return None
    text = str(tokenizer.decode([token]))
    return text if any(map(str.isalnum, text)) else None


def _map_guesses(head: Block, named: Weights, offsets: mx.array | None) -> None:
    """Say which of the target's ids a reduced vocabulary has."""
    places = ("lm_head.weight", "markov_head.markov_w2.weight")
    wide = next((named[it].shape[0] for it in places if it in named), None)
    if offsets is None:
        if wide is not None and wide < head.vocabulary:
            raise ValueError(f"guesses {wide} ids and does not say which of the target's they are")
        if wide is not None and wide > head.vocabulary and "lm_head.weight" not in named:
            raise ValueError(f"guesses {wide} ids, and the target has {head.vocabulary}")
        return
    head.guesses = guesses_of(offsets, wide, head.vocabulary)
