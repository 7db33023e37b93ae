"""Gemma 4's assistants: what they compute, what they attend to, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from architectures import ARCHITECTURES
from assistantfiles import (
    ASSISTANT,
    CHOSEN,
    CLUSTERED,
    CLUSTERS,
    KINDS,
    OWN,
    SIZES,
    assistant_tensors,
)
from headfiles import WIDTH, target_of, written
from mlx_lm.models.cache import KVCache
from test_head_numbers import Array, as_numpy, normed
from tinymodels import VOCABULARY, WINDOW, built

from macspec.drafters import AssistantModel
from macspec.errors import PairMismatchError
from macspec.heads import head_in, open_head
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.models.catalog import advised_head, catalogue
from macspec.models.sidecars import made_for, made_for_another

Tensors = dict[str, mx.array]

TOKENS = [(11 * i * i + 5 * i) % 60 for i in range(66)]
STRAY = [13, 41, 7]
"""Tokens that the target reads and takes back."""


def turned(x: Array, place: int, kind: str) -> Array:
    """Queries [heads, size] at a place; of full attention a quarter of each is turned."""
    size = x.shape[-1]
    base, share = (1e6, 0.25) if kind == "full_attention" else (1e4, 1.0)
    speeds = base ** (-np.arange(0, size, 2) / size)
    speeds[int(share * size // 2) :] = 0
    cos, sin = np.cos(place * speeds), np.sin(place * speeds)
    first, second = np.split(x, 2, -1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def stepped(
    w: dict[str, Array], hidden: Array, embedded: Array, held: dict[str, Any], place: int
) -> Array:
    """The equations of a step [own width] at a place, beside keys and values of all before it."""
    x = w["pre_projection.weight"] @ np.concatenate([embedded * WIDTH**0.5, hidden])
    for at, kind in enumerate(KINDS):
        start = f"model.layers.{at}."
        h = normed(x, w[f"{start}input_layernorm.weight"])
        q = (w[f"{start}self_attn.q_proj.weight"] @ h).reshape(2, SIZES[kind])
        q = turned(normed(q, w[f"{start}self_attn.q_norm.weight"]), place, kind)
        first = max(place - WINDOW + 1, 0) if kind == "sliding_attention" else 0
        keys, values = (it[first:place] for it in held[kind])
        weights = np.exp(q @ keys.T)
        mixed = weights / weights.sum(-1, keepdims=True) @ values
        h = w[f"{start}self_attn.o_proj.weight"] @ mixed.reshape(-1)
        x = x + normed(h, w[f"{start}post_attention_layernorm.weight"])
        h = normed(x, w[f"{start}pre_feedforward_layernorm.weight"])
        gate = w[f"{start}mlp.gate_proj.weight"] @ h
        gate = gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3))) / 2
        h = w[f"{start}mlp.down_proj.weight"] @ (gate * (w[f"{start}mlp.up_proj.weight"] @ h))
        x = x + normed(h, w[f"{start}post_feedforward_layernorm.weight"])
        x = x * w[f"{start}layer_scalar"]
    return normed(x, w["model.norm.weight"])


def spoken(w: dict[str, Array], row: Array) -> Array:
    logits: Array = w["model.embed_tokens.weight"] @ row
    if (centroids := w.get("masked_embedding.centroids.weight")) is None:
        return logits
    best = np.argsort(centroids @ row)[-CHOSEN:]
    ids = w["masked_embedding.token_ordering"].astype(int).reshape(CLUSTERS, -1)[best].flatten()
    some = np.full(len(logits), -np.inf)
    some[ids] = logits[ids]
    return some


@pytest.mark.parametrize("clustered", [False, True])
def test_the_logits_of_64_committed_tokens(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clustered: bool
) -> None:
    """Beside the equations, whatever the target read in between and took back."""
    monkeypatch.setattr("macspec.drafters.assistant.LEAST", 1000)
    vocabulary = VOCABULARY - clustered  # clusters divide it
    module = built(ARCHITECTURES["gemma4_text"] | {"vocab_size": vocabulary})
    tensors = assistant_tensors(clustered, vocabulary)
    files = head_in("a head", written(tmp_path, tensors, CLUSTERED if clustered else ASSISTANT))
    assert files is not None
    assert (files.kind, files.packaging) == ("mtp", "Gemma 4 assistant")
    target = replace(target_of(pocket, "gemma4_text"), module=module, width=vocabulary)
    head = open_head(files, target)
    w = as_numpy(tensors)

    # All positions, which a window of the target forgets.
    caches: Any = [KVCache(), KVCache()]  # type: ignore[no-untyped-call]
    module(mx.array([TOKENS]), cache=caches)
    held = {
        kind: [np.array(it[0, 0], np.float64) for it in cache.keys_and_values()]
        for kind, cache in zip(SIZES, caches, strict=True)
    }
    embedding = np.array(module.model.embed_tokens.weight, np.float64)
    model = CachedModel(module, vocabulary)
    hidden = model.show(head.module.wanted)
    stepper = AssistantModel(head.module, model, 4096)
    for last in range(1, 65, 1 + 8 * clustered):
        text = TOKENS[: last + 1]
        model.logits(mx.array([*text[model.length : last], *STRAY[: last % 4]]), 1)
        model.rollback(last)
        row = np.array(hidden.rows(last - 1, last)[0][0], np.float64)
        token, found = text[-1], stepper.first(text, 2, mx.async_eval)
        for following in (17, None):
            out = stepped(w, row, embedding[token], held, last)
            expected = spoken(w, out)
            finite = np.isfinite(expected)
            logits = np.array(found)[0]
            assert np.array_equal(np.isfinite(logits), finite)
            assert np.abs(logits[finite] - expected[finite]).max() < 1e-4
            if following is not None:
                found = stepper.next(mx.array([following], mx.uint32), mx.async_eval)
                token, row = following, w["post_projection.weight"] @ out


def test_quantized_keys_and_values_are_attended_to(pocket: Pair, tmp_path: Path) -> None:
    files = head_in("a head", written(tmp_path, assistant_tensors(), ASSISTANT))
    assert files is not None
    module = built(ARCHITECTURES["gemma4_text"] | {"num_kv_shared_layers": 0})
    head = open_head(files, replace(target_of(pocket, "gemma4_text"), module=module)).module
    assert head.sharers == (2, 2, 3)
    logits = []
    for bits in (None, 8):
        model = CachedModel(module, VOCABULARY, kv_bits=bits)
        model.show(head.wanted)
        model.read(TOKENS[:20])
        logits.append(AssistantModel(head, model, 4096).first(TOKENS[:21], 1, mx.async_eval))
    difference = mx.abs(logits[0] - logits[1]).max().item()
    assert 0 < difference < 0.1 * mx.abs(logits[0]).max().item()


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {it: array for it, array in tensors.items() if name not in it}


def resized(name: str, rows: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: mx.zeros((rows, OWN))}


@pytest.mark.parametrize(
    ("target", "change", "said"),
    [
        ("gemma4_text", resized("post_projection.weight", 96), "is for rows of 96 numbers"),
        (
            "gemma4_text",
            resized("model.embed_tokens.weight", 70),
            "knows 70 ids, and",
        ),
        ("gemma4_text", without("layers.1.mlp.up_proj"), "lacks layers.1.mlp.up_proj.weight"),
        ("gemma4_text", without("embed_tokens"), "lacks embed_tokens.weight"),
        ("gemma4_text", lambda it: it | {"model.extra.weight": mx.zeros(2)}, "an unknown tensor"),
        ("llama", lambda it: it, "attends to a Gemma 4 target, and this is none"),
    ],
)
def test_what_does_not_fit_is_refused(
    pocket: Pair,
    tmp_path: Path,
    target: str,
    change: Callable[[Tensors], Tensors],
    said: str,
) -> None:
    files = head_in("a head", written(tmp_path, change(assistant_tensors()), ASSISTANT))
    assert files is not None
    with pytest.raises(PairMismatchError, match=said):
        open_head(files, target_of(pocket, target))


NARROW = ASSISTANT["text_config"] | {"global_head_dim": 32}


@pytest.mark.parametrize(
    ("settings", "change", "said"),
    [
        (CLUSTERED, {"masked_embedding.token_ordering": mx.arange(60) + 1}, "orders its voc"),
        (CLUSTERED | {"num_centroids": 7}, {}, "divides 60 ids into 7 clusters"),
        (CLUSTERED | {"centroid_intermediate_top_k": 11}, {}, "orders its vocabulary"),
        (CLUSTERED | {"text_config": NARROW}, {}, "2 heads of 32 numbers, and .* has 1 of 64"),
        (CLUSTERED | {"text_config": None}, {}, "config.json that cannot be read"),
    ],
)
def test_settings_that_cannot_be(
    pocket: Pair, tmp_path: Path, settings: dict[str, Any], change: Tensors, said: str
) -> None:
    tensors = assistant_tensors(True, 60) | change
    files = head_in("a head", written(tmp_path, tensors, settings))
    assert files is not None
    target = replace(target_of(pocket, "gemma4_text"), width=60)
    with pytest.raises(PairMismatchError, match=said):
        open_head(files, target)


def test_its_target_is_told_by_its_name(tmp_path: Path) -> None:
    written(tmp_path, assistant_tensors(), ASSISTANT)
    files = head_in("mlx-community/gemma-4-26B-A4B-it-assistant-bf16", tmp_path)
    assert files is not None
    assert made_for(files) == "gemma-4-26B-A4B-it"
    target = "mlx-community/gemma-4-26b-a4b-it-4bit"
    assert made_for_another(files, target) is None
    kind, repository = advised_head("owner/gemma-4-31b-it-8bit", catalogue()) or ("", "")
    assert (kind, repository.endswith("assistant-bf16")) == ("mtp", True)
