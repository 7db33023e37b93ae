"""Heads compute what their papers say: their logits beside the equations in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from headfiles import (
    EAGLE,
    LAYER,
    REDUCED,
    SLIDING,
    SPECULATORS,
    WIDTH,
    eagle_tensors,
    first_eagle_tensors,
    mtp_tensors,
    reduced,
    target_of,
    written,
)
from mtpfiles import PACKAGINGS, Made
from tinymodels import VOCABULARY, tiny

from macspec.drafters import HeadModel
from macspec.heads import head_in, open_head, own_head
from macspec.models import Pair
from macspec.models.cached import CachedModel

Array = np.ndarray[Any, np.dtype[np.float64]]

TOKENS = [(11 * i * i + 5 * i) % VOCABULARY for i in range(65)]


def normed(x: Array, weight: Array) -> Array:
    out: Array = x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-5) * weight
    return out


def turned(x: Array, base: float) -> Array:
    """Rotary positions of rows [n, heads, size]."""
    size = x.shape[-1]
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = np.split(x, 2, -1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def projected(x: Array, w: dict[str, Array], name: str) -> Array:
    out: Array = x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)
    return out


def attended(
    x: Array, w: dict[str, Array], start: str, base: float = 10000.0, window: int = 999
) -> Array:
    """Causal attention with 2 heads of 32 that share one head of keys and values."""
    n = len(x)
    q, k, v = (projected(x, w, f"{start}{it}_proj") for it in "qkv")
    q, k = q.reshape(n, 2, 32), k.reshape(n, 1, 32)
    if f"{start}q_norm.weight" in w:
        q, k = (normed(x, w[f"{start}{name}_norm.weight"]) for name, x in (("q", q), ("k", k)))
    queries, keys = turned(q, base), turned(k, base)[:, 0]
    scores = np.einsum("ihd,jd->hij", queries, keys) / np.sqrt(32)
    visible = np.tri(n, dtype=bool) & ~np.tri(n, k=-window, dtype=bool)
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("hij,jd->ihd", weights, v).reshape(n, 64)
    return projected(out, w, f"{start}o_proj")


def fed_forward(x: Array, w: dict[str, Array], start: str) -> Array:
    gate = x @ w[f"{start}gate_proj.weight"].T
    inner = gate / (1 + np.exp(-gate)) * (x @ w[f"{start}up_proj.weight"].T)
    out: Array = inner @ w[f"{start}down_proj.weight"].T
    return out


def layered(x: Array, w: dict[str, Array], start: str, base: float = 10000.0) -> Array:
    """A llama's layer."""
    row = normed(x, w[f"{start}input_layernorm.weight"])
    x = x + attended(row, w, f"{start}self_attn.", base)
    h = normed(x, w[f"{start}post_attention_layernorm.weight"])
    return x + fed_forward(h, w, f"{start}mlp.")


def as_numpy(weights: Any) -> dict[str, Array]:
    return {name: np.array(it, np.float64) for name, it in weights.items()}


def mtp_by_hand(
    w: dict[str, Array], rows: list[Array], embedded: Array, head: Array, settings: dict[str, Any]
) -> Array:
    parts = [
        normed(embedded, w["mtp.pre_fc_norm_embedding.weight"]),
        normed(rows[0], w["mtp.pre_fc_norm_hidden.weight"]),
    ]
    x = layered(np.concatenate(parts, -1) @ w["mtp.fc.weight"].T, w, "mtp.layers.0.")
    logits: Array = normed(x, w["mtp.norm.weight"]) @ head.T
    if "d2t" in w:
        unknown = np.setdiff1d(np.arange(VOCABULARY), np.arange(REDUCED) + w["d2t"])
        logits[:, unknown] = -np.inf
    return logits


def eagle_by_hand(
    w: dict[str, Array], rows: list[Array], embedded: Array, head: Array, settings: dict[str, Any]
) -> Array:
    low = rows[1:]
    if "fc_norm.0.weight" in w:
        low = [normed(row, w[f"fc_norm.{it}.weight"]) for it, row in enumerate(low)]
    fused = np.concatenate(low, -1)
    if "input_norm.weight" in w:
        fused = normed(fused, w["input_norm.weight"])
    hidden = fused @ w["fc.weight"].T
    row = normed(hidden, w["midlayer.hidden_norm.weight"])
    parts = [normed(embedded, w["midlayer.input_layernorm.weight"]), row]
    x = row if settings.get("norm_before_residual") else hidden
    rope = settings.get("transformer_layer_config", {}).get("rope_parameters", {})
    base = rope.get("rope_theta", 10000.0)
    window = settings.get("sliding_window", 999)
    x = x + attended(np.concatenate(parts, -1), w, "midlayer.self_attn.", base, window)
    h = normed(x, w["midlayer.post_attention_layernorm.weight"])
    x = x + fed_forward(h, w, "midlayer.mlp.")
    if "layers.1.input_layernorm.weight" in w:
        x = layered(x, w, "layers.1.", base)
    known = normed(x, w["norm.weight"]) @ w["lm_head.weight"].T
    logits = np.full((len(x), VOCABULARY), -np.inf)
    logits[:, np.arange(REDUCED) + w["d2t"].astype(int)] = known
    return logits


def first_eagle_by_hand(
    w: dict[str, Array], rows: list[Array], embedded: Array, head: Array, settings: dict[str, Any]
) -> Array:
    x = np.concatenate([embedded, rows[0]], -1) @ w["fc.weight"].T
    x = x + attended(x, w, "layers.0.self_attn.")
    h = normed(x, w["layers.0.post_attention_layernorm.weight"])
    logits: Array = (x + fed_forward(h, w, "layers.0.mlp.")) @ head.T
    return logits


QK: dict[str, tuple[int, ...]] = {f"midlayer.self_attn.{it}_norm.weight": (32,) for it in "qk"}
BIASED = {"q": 64, "k": 32, "v": 32, "o": WIDTH}
SECOND: dict[str, tuple[int, ...]] = {
    "layers.1.input_layernorm.weight": (WIDTH,),
    "layers.1.self_attn.q_proj.weight": (64, WIDTH),
    "layers.1.self_attn.k_proj.weight": (32, WIDTH),
    "layers.1.self_attn.v_proj.weight": (32, WIDTH),
    **{f"layers.1.{name}": shape for name, shape in LAYER.items()},
}
NARROW = 48
NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
EAGLES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "eagle": ({}, EAGLE),
    "speculators": ({}, SPECULATORS),
    "a norm for each layer": ({f"fc_norm.{it}.weight": (WIDTH,) for it in range(3)}, EAGLE),
    "a norm before the mix": ({"input_norm.weight": (3 * WIDTH,)}, SPECULATORS),
    "biases": (
        {f"midlayer.self_attn.{it}_proj.bias": (size,) for it, size in BIASED.items()},
        EAGLE,
    ),
    "norms in attention": (QK, EAGLE),
    "two layers": (SECOND, EAGLE),
    "two layers, as speculators names them": (SECOND, SPECULATORS),
    "a sliding window": ({}, SLIDING),
    "the normed row again": ({}, EAGLE | {"norm_output": True}),
    "narrower than its target": (
        {
            "embed_tokens.weight": (VOCABULARY, NARROW),
            "fc.weight": (NARROW, 3 * WIDTH),
            "lm_head.weight": (REDUCED, NARROW),
            **{f"midlayer.self_attn.{it}_proj.weight": (32, 2 * NARROW) for it in "kv"},
            "midlayer.self_attn.q_proj.weight": (64, 2 * NARROW),
            "midlayer.self_attn.o_proj.weight": (NARROW, 64),
            **{f"midlayer.mlp.{it}_proj.weight": (48, NARROW) for it in ("gate", "up", "down")},
            **{f"midlayer.{it}.weight": (NARROW,) for it in NORMS},
            "norm.weight": (NARROW,),
        },
        EAGLE | {"hidden_size": NARROW, "target_hidden_size": WIDTH},
    ),
}


@pytest.mark.parametrize("kind", ["mtp", "mtp, some ids", "eagle-1", *EAGLES])
def test_the_logits_of_64_committed_tokens(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # A random head agrees by chance, however it is read.
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    module = tiny("llama")
    settings: dict[str, Any] = EAGLE
    if kind.startswith("mtp"):
        some = reduced() if "ids" in kind else {}
        tensors, by_hand = mtp_tensors(module) | some, mtp_by_hand
    elif kind == "eagle-1":
        tensors, by_hand = first_eagle_tensors(), first_eagle_by_hand
    else:
        more, settings = EAGLES[kind]
        tensors, by_hand = eagle_tensors(1, more), eagle_by_hand
    written(tmp_path, packed(tensors, settings), settings)
    files = head_in("a head", tmp_path)
    assert files is not None
    head = open_head(files, target_of(pocket, "llama"))
    target = CachedModel(module, VOCABULARY)
    hidden = target.show(head.module.wanted)
    target.read(TOKENS[:-1])
    rows = [np.array(it, np.float64) for it in hidden.rows(0, 64)]
    embedding = np.array(module.model.embed_tokens.weight, np.float64)
    output = np.array(module.lm_head.weight, np.float64) if "lm_head" in module else embedding
    w = as_numpy(tensors)
    embedded = w.get("embed_tokens.weight", embedding)[TOKENS[1:]]
    expected = by_hand(w, rows, embedded, output, settings)

    stepper = HeadModel(head.module, target, 4096)
    for stop in (20, 41, 65):
        newest = stepper.first(TOKENS[:stop], 2, mx.async_eval)
        logits = rows_of(stepper)
        assert mx.array_equal(newest, logits[-1:])
        finite = np.isfinite(expected[stepper._start : stop - 1])
        assert np.array_equal(np.isfinite(logits), finite)
        off = np.array(logits)[finite] - expected[stepper._start : stop - 1][finite]
        assert np.abs(off).max() < 1e-4
        # What it drafts itself is gone when it reads on.
        stepper.next(mx.array([3], mx.uint32), mx.async_eval)


def rows_of(stepper: HeadModel) -> mx.array:
    """The logits after every token that a head has just read."""
    return stepper._depths[0].output(stepper._out)


def packed(tensors: dict[str, mx.array], settings: dict[str, Any]) -> dict[str, mx.array]:
    """As speculators names them, where the settings are its own."""
    if "speculators_model_type" not in settings:
        return tensors
    return {name.replace("midlayer.", "layers.0."): array for name, array in tensors.items()}


@pytest.mark.parametrize("name", PACKAGINGS)
def test_each_packaging_of_mtp_heads(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Beside a model of mlx-lm that has no layers but the head's."""
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    made = Made(PACKAGINGS[name])
    family, depths = made.packaging.family, made.packaging.depths
    alien = {} if "sidecar" in name else {"model.layers.0.self_attn.q_proj.weight": mx.zeros(1)}
    written(tmp_path, made.tensors | alien, {})
    target = target_of(pocket, family)
    files = own_head(name, tmp_path, target.layers) if alien else head_in(name, tmp_path)
    assert files is not None
    head = open_head(files, target).module
    assert len(head.depths) == depths

    model = CachedModel(target.module, VOCABULARY)
    hidden = model.show(head.wanted)
    assert hidden.tap.reason is None
    model.read(TOKENS[:-1])
    rows, tokens = hidden.rows(0, 64)[0], [*TOKENS, 5, 7]
    expected = []
    for at in range(depths):
        rows = made.rows(at, rows, hidden.tap.embedding(mx.array(tokens[at + 1 : at + 65])))
        expected.append(hidden.tap.logits(rows))

    stepper = HeadModel(head, model, 4096)
    for stop in (20, 41, 42, 65):
        logits = stepper.first(tokens[:stop], depths, mx.async_eval)
        every = rows_of(stepper)
        assert mx.array_equal(logits, every[-1:])
        off = every - expected[0][stepper._start : stop - 1]
        assert mx.abs(off).max().item() < 1e-4
        for at in range(1, depths):
            drafted = tokens[stop + at - 1]
            logits = stepper.next(mx.array([drafted], mx.uint32), mx.async_eval)
            assert mx.abs(logits[0] - expected[at][stop - 2]).max().item() < 1e-4
        stepper.next(mx.array([3], mx.uint32), mx.async_eval)
        stepper.rollback(stop - 1)


def test_far_back_where_a_head_keeps_only_a_window(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    made, target = Made(PACKAGINGS["mimo_v2_flash"]), target_of(pocket, "mimo_v2_flash")
    alien = {"model.layers.0.self_attn.q_proj.weight": mx.zeros(1)}
    written(tmp_path, made.tensors | alien, {})
    files = own_head("mimo", tmp_path, target.layers)
    assert files is not None
    head = open_head(files, target).module

    def read(model: CachedModel, tokens: list[int]) -> None:
        while model.length < len(tokens) - 1:
            model.read(tokens[model.length : -1])

    models = [CachedModel(target.module, VOCABULARY) for _ in range(2)]
    assert all(it.show(head.wanted).tap.reason is None for it in models)
    again, fresh = (HeadModel(head, it, 4096) for it in models)
    long, short = TOKENS * 9, [*TOKENS[:40], 5, 7, 3]
    read(models[0], long)
    again.first(long, 2, mx.async_eval)
    models[0].rollback(40)
    again.rollback(40)
    read(models[0], short)
    read(models[1], short)
    expected = fresh.first(short, 2, mx.async_eval)
    assert mx.abs(again.first(short, 2, mx.async_eval) - expected).max().item() < 1e-4
