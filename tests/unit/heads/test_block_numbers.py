"""Block drafters compute what their papers say: every guess beside the equations in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from blockfiles import HEADS, MASK, PACKAGINGS, REDUCED, SIZE, block_of, tensors_of
from headfiles import WIDTH
from test_head_numbers import TOKENS, Array, as_numpy, fed_forward, normed
from tinymodels import VOCABULARY, tiny

from macspec.drafters import BlockModel
from macspec.models import Pair
from macspec.models.cached import CachedModel


@dataclass(frozen=True)
class Facts:
    """What a packaging means, as its own code runs it."""

    block: int
    first: int = 0
    windows: tuple[int, int] = (999, 999)
    causal: tuple[bool, bool] = (False, False)
    neighbours: bool = False
    rotated: int = SIZE
    yarn: bool = False
    minus: float = 0.0
    cap: float | None = None
    factor: float = 1.0
    scale: float = 1.0


FACTS = {
    "z-lab": Facts(6, first=1, windows=(24, 999), causal=(True, False)),
    "dflash2": Facts(8, first=1, cap=4.0, factor=0.5, scale=1.5),
    "deepspec": Facts(7),
    "deepspec-gemma": Facts(7, rotated=8, cap=30.0, scale=WIDTH**0.5),
    "bonsai": Facts(7),
    "speculators": Facts(6, first=1),
    "speculators-causal": Facts(6, windows=(20, 20), causal=(True, True)),
    "speculators-dflash": Facts(6, first=1, windows=(20, 20)),
    "specforge": Facts(7, yarn=True),
    "liquid": Facts(9, neighbours=True),
    "nvidia": Facts(7, windows=(20, 20), causal=(True, True)),
    "native": Facts(7, rotated=8, minus=1.0),
}


def rates(facts: Facts, gemma: bool) -> tuple[Array, float]:
    """Turns per position, and what queries and keys are multiplied with."""
    if gemma:  # as if the whole head were turned, but for what lies beyond
        whole = 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
        return np.where(np.arange(SIZE // 2) < facts.rotated // 2, whole, 0.0), 1.0
    plain = 10000.0 ** (-np.arange(0, facts.rotated, 2) / facts.rotated)
    if not facts.yarn:
        return plain, 1.0

    # YaRN (arXiv:2309.00071): slow turns are stretched by 4, fast ones stay, a ramp between.
    def place(turns: float) -> float:
        return float(SIZE * np.log(32 / (turns * 2 * np.pi)) / (2 * np.log(10000.0)))

    low, high = max(np.floor(place(32)), 0), min(np.ceil(place(1)), SIZE - 1)
    ramp = np.clip((np.arange(SIZE // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain / 4 * ramp + plain * (1 - ramp), 0.1 * np.log(4) + 1


def turned(x: Array, places: Array, facts: Facts, gemma: bool) -> Array:
    """Rotary positions of rows [n, heads, size]."""
    speeds, grown = rates(facts, gemma)
    angles = places[:, None, None] * speeds
    cos, sin = np.cos(angles), np.sin(angles)
    count = 2 * len(speeds)
    x, rest = x[..., :count] * grown, x[..., count:]
    first, second = (x[..., ::2], x[..., 1::2]) if facts.neighbours else np.split(x, 2, -1)
    pairs = first * cos - second * sin, second * cos + first * sin
    joined = np.stack(pairs, -1).reshape(x.shape) if facts.neighbours else np.concatenate(pairs, -1)
    return np.concatenate([joined, rest], -1)


def convolved(x: Array, w: dict[str, Array], start: str, taps: Array, side: int) -> Array:
    before = np.concatenate([np.zeros((1, WIDTH)), x[:-1]])
    spread = np.repeat(taps[:, side], 16, -1) + w[f"{start}base_kernel"][side]
    out: Array = spread[:, 0] * x + spread[:, 1] * before
    return out


class ByHand:
    """A head in float64."""

    def __init__(self, name: str, facts: Facts, embedding: Array, output: Array) -> None:
        self.facts, self.parts = facts, PACKAGINGS[name].parts
        self.w = as_numpy(tensors_of(PACKAGINGS[name]))
        for key in self.w:
            self.w[key] = self.w[key] + self.facts.minus * ("norm" in key)
        self.embedding = self.w.get("embed_tokens.weight", embedding)
        self.known = np.arange(len(output))
        if "reduced" in self.parts:
            self.known = np.arange(REDUCED) + self.w["d2t"].astype(int)
        self.output = self.w.get("lm_head.weight", output[self.known])

    def rows(self, seen: list[Array], anchor: int) -> Array:
        """The block's guessing rows behind the target's rows of the positions before ``anchor``."""
        w, facts = self.w, self.facts
        context = normed(np.concatenate(seen, -1) @ w["fc.weight"].T, w["hidden_norm.weight"])
        x = self.embedding[[anchor] + [MASK] * (facts.block - 1)] * facts.scale
        if "noise" in self.parts:  # log-SNR embeddings: the anchor is clean, masks are noise
            angles = (
                1000 * (np.arange(facts.block) == 0)[:, None] * 10000.0 ** (-np.arange(64) / 64)
            )
            h = np.concatenate([np.sin(angles), np.cos(angles)], -1)
            h = h @ w["log_snr_embed.fc1.weight"].T + w["log_snr_embed.fc1.bias"]
            h = h / (1 + np.exp(-h))
            x = x + h @ w["log_snr_embed.fc2.weight"].T + w["log_snr_embed.fc2.bias"]
        for at in range(2):
            x = self.layer(x, context, at)
        return normed(x, w["norm.weight"])[facts.first :]

    def layer(self, x: Array, context: Array, at: int) -> Array:
        w, start, gemma = self.w, f"layers.{at}.", "gemma" in self.parts
        sandwich = "post_attention_layernorm.weight"

        def around(name: str, h: Array, part: Any) -> Array:
            if "convs" not in self.parts:
                return np.asarray(part(h))
            inner = f"{start}{name}."
            taps = (h @ w[f"{inner}kernel_projection.weight"].T).reshape(len(h), 2, 2, -1)
            out = part(convolved(h, w, inner, taps, 0))
            return convolved(out, w, inner, taps, 1)

        def attended(h: Array) -> Array:
            out = self.attended(h, context, at)
            return normed(out, w[start + sandwich]) if gemma else out

        x = x + around("attention_conv", normed(x, w[f"{start}input_layernorm.weight"]), attended)
        if not gemma:
            h = normed(x, w[start + sandwich])
            return x + around("mlp_conv", h, lambda it: fed_forward(it, w, f"{start}mlp."))
        h = normed(x, w[f"{start}pre_feedforward_layernorm.weight"])
        gate, up = (h @ w[f"{start}mlp.{it}_proj.weight"].T for it in ("gate", "up"))
        bent = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        out = (bent * up) @ w[f"{start}mlp.down_proj.weight"].T
        x = x + normed(out, w[f"{start}post_feedforward_layernorm.weight"])
        return x * w[f"{start}layer_scalar"]

    def attended(self, x: Array, context: Array, at: int) -> Array:
        w, facts, start = self.w, self.facts, f"layers.{at}.self_attn."
        gemma, n, m = "gemma" in self.parts, len(context), len(x)
        q = (x @ w[f"{start}q_proj.weight"].T).reshape(m, HEADS, -1)
        q, gate = np.split(q, 2, -1) if "gated" in self.parts else (q, None)
        both = np.concatenate([context, x])
        keys = both @ w[f"{start}k_proj.weight"].T
        own = f"{start}v_proj.weight"
        values = normed(keys, np.ones(SIZE)) if gemma else both @ w[own].T
        places = np.arange(n + m)
        q = turned(normed(q, w[f"{start}q_norm.weight"]), places[n:], facts, gemma)
        k = normed(keys, w[f"{start}k_norm.weight"])[:, None]
        k = turned(k, places, facts, gemma)[:, 0]
        scores = np.einsum("ihd,jd->hij", q, k) * (1 if gemma else SIZE**-0.5)
        visible = places[None] > places[n:, None] - facts.windows[at]
        if facts.causal[at]:
            visible &= places[None] <= places[n:, None]
        weights = np.exp(np.where(visible, scores, -np.inf))
        total = weights.sum(-1, keepdims=True)
        if "sink" in self.parts:
            total = total + np.exp(w[f"{start}attention_sink_bias"])[:, None, None]
        out = np.einsum("hij,jd->ihd", weights / total, values)
        if gate is not None:
            out = out / (1 + np.exp(-gate))
        mixed: Array = out.reshape(m, -1) @ w[f"{start}o_proj.weight"].T
        return mixed

    def guess(self, row: Array, previous: int) -> Array:
        """Logits of one row after a token."""
        w, facts = self.w, self.facts
        logits = self.output @ row * facts.factor
        if facts.cap is not None:
            logits = facts.cap * np.tanh(logits / facts.cap)
        whole = np.full(VOCABULARY, -np.inf)
        if "convs" in self.parts:
            start = "candidate_selector."
            best = np.argsort(logits)[-16:]
            before = w[f"{start}predecessor_codebook"][previous]
            before = before * (w[f"{start}hidden_projection.weight"] @ row)
            whole[best] = logits[best] + w[f"{start}successor_codebook"][best] @ before
            return whole
        if "markov_head.markov_w1.weight" in w:
            before = w["markov_head.markov_w1.weight"][previous]
            logits = logits + w["markov_head.markov_w2.weight"] @ before
        whole[self.known] = logits
        return whole


SCALED = {"z-lab": 8.0, "deepspec-gemma": 8.0, "speculators": 1.0}
"""What rows of a block are scaled with for a Gemma, which scales its embeddings by 8: those of its
own embedding, those of layers like its own, and not those of another embedding."""


@pytest.mark.parametrize(
    ("target_name", "name"),
    [("llama", it) for it in PACKAGINGS] + [("gemma3_text", it) for it in SCALED],
)
def test_the_guesses_over_64_committed_tokens(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target_name: str, name: str
) -> None:
    # A random head agrees by chance, however it is read.
    monkeypatch.setattr("macspec.drafters.block.LEAST", 1000)
    module, facts = tiny(target_name), FACTS[name]
    if target_name != "llama":
        facts = replace(facts, scale=SCALED[name])
    head = block_of(pocket, target_name, name, tmp_path).module
    target = CachedModel(module, VOCABULARY)
    hidden = target.show(head.wanted)
    target.read(TOKENS[:-1])
    rows = [np.array(it, np.float64) for it in hidden.rows(0, 64)][1:]
    embedding = np.array(module.model.embed_tokens.weight, np.float64)
    output = np.array(module.lm_head.weight, np.float64) if "lm_head" in module else embedding
    by_hand = ByHand(name, facts, embedding, output)

    stepper = BlockModel(head, target, 4096)
    for stop, back in ((20, 12), (41, 33), (65, 30), (52, 2), (64, 64)):
        guessing = by_hand.rows([it[: stop - 1] for it in rows], TOKENS[stop - 1])
        depth, previous = head.size, TOKENS[stop - 1]
        logits = stepper.first(TOKENS[:stop], depth, mx.async_eval)
        for at in range(depth):
            expected, found = by_hand.guess(guessing[at], previous), np.array(logits)[0]
            finite = np.isfinite(expected)
            assert np.array_equal(np.isfinite(found), finite)
            assert np.abs(found[finite] - expected[finite]).max() < 1e-4
            previous = int(np.argmax(expected))
            if at + 1 < depth:
                logits = stepper.next(mx.array([previous], mx.uint32), mx.async_eval)
        stepper.rollback(back)
