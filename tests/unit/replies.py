"""Helpers to run replies and to look at what they leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import ArraysCache

from macspec import Finished, Session
from macspec.drafters import ChainDrafter, DraftModel
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.text import Piece


class Rows:
    """A model that remembers how many rows each pass had."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.seen: list[int] = []

    def __call__(self, tokens: mx.array, cache: Any) -> Any:
        self.seen.append(tokens.shape[1])
        return self.module(tokens, cache=cache)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


class Unheard:
    """A text stream for a reply that nobody reads."""

    stopped = False
    part = "answer"

    def push(self, token: int, drafter: str | None) -> list[Piece]:
        return []

    def finish(self) -> list[Piece]:
        return []


def finish(session: Session, messages: Any, sampling: Any = None, **options: Any) -> Finished:
    """Run a reply to its end."""
    *_, last = session.reply(messages, sampling, **options)
    assert isinstance(last, Finished)
    return last


def prompt_tokens(pair: Pair, messages: Any) -> list[int]:
    """What mlx-lm makes of the messages."""
    tokenizer: Any = pair.target.tokenizer
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True))


def plain_greedy(pair: Pair, prompt: Sequence[int], max_tokens: int) -> tuple[int, ...]:
    """The same reply by mlx-lm's own loop, up to the end of turn."""
    tokens: list[int] = []
    steps = generate_step(mx.array(list(prompt)), pair.target.module, max_tokens=max_tokens)
    for token, _ in steps:
        tokens.append(int(token))
        if token in pair.stop_ids:
            break
    return tuple(tokens)


def caches(session: Session) -> dict[str, CachedModel]:
    """Every model of a session with what it has read."""
    decoder = session.decoder
    found = {"target": decoder.target}
    draft = decoder.portfolio.drafters.get("draft")
    if isinstance(draft, ChainDrafter) and isinstance(draft.stepper, DraftModel):
        found["draft"] = draft.stepper.model
    return found


def assert_like_fresh(session: Session) -> None:
    """Every cache holds a prefix of the committed tokens, as a fresh prefill would have left it."""
    committed = session.decoder.tokens
    for name, model in caches(session).items():
        assert model.length <= len(committed), name
        model.cache.fold()
        if model.length == 0:
            continue
        bits = next((it.bits for it in leaves(model) if hasattr(it, "bits")), None)
        fresh = CachedModel(model.module, model.vocabulary, kv_bits=bits)
        fresh.read(committed[: model.length])
        for mine, theirs in zip(leaves(model), leaves(fresh), strict=True):
            if not isinstance(mine, ArraysCache):
                assert mine.offset == theirs.offset == model.length, name
            for a, b in zip(live(mine), live(theirs), strict=True):
                assert a.shape == b.shape, name
                assert mx.allclose(a, b, rtol=1e-3, atol=1e-3).item(), name


def leaves(model: CachedModel) -> list[Any]:
    """The caches of a model's layers, those inside of lists too."""
    return [leaf for layer in model.cache.layers for leaf in getattr(layer, "caches", [layer])]


def live(layer: Any) -> list[mx.array]:
    """The state, or the keys and values that a later pass can see, in temporal order."""
    if isinstance(layer, ArraysCache):
        return [state for state in layer.cache if state is not None]
    if not hasattr(layer, "keys_and_values"):
        return [value for value in vars(layer).values() if isinstance(value, mx.array)]
    keys, values = layer.keys_and_values()
    if isinstance(keys, tuple):
        return [part.astype(mx.float32) for part in (*keys[1:], *values[1:])]
    seen = layer.offset
    if hasattr(layer, "max_size"):
        seen = min(seen, layer.max_size - 1)
    elif hasattr(layer, "chunk_size"):
        seen %= layer.chunk_size
    return [part[..., part.shape[2] - seen :, :] for part in (keys, values)]
