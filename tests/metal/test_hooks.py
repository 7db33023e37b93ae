"""Hooks: every place of a stock model is reached, in this pass and this thread alone."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx
import pytest
import quantized
from mlx_lm.models import base
from quantized import bound, logits, places

from macspec.metal.hooks import Hooks, QuantizedLayer


class Watching:
    """Leaves everything to MLX and counts."""

    def __init__(self) -> None:
        self.matmuls = self.attentions = 0

    def matmul(self, layer: Any, x: mx.array) -> None:
        self.matmuls += 1

    def attention(self, *_: Any) -> None:
        self.attentions += 1


def test_every_leaf_and_every_attention_is_reached() -> None:
    module = quantized.model()
    watching = Watching()
    with Hooks(module).handled(watching):
        logits(module)
    assert watching.matmuls == 2 * 7 + 1, "the tied head is one of them"
    assert watching.attentions == 2


def test_an_untied_head_and_biases_are_reached() -> None:
    module = quantized.model(tied=False)
    expected = logits(module)
    watching = Watching()
    with Hooks(module).handled(watching):
        assert mx.array_equal(logits(module), expected)
    assert watching.matmuls == 2 * 7 + 1


def test_a_product_by_a_handler_gets_the_layers_bias() -> None:
    module = quantized.model(tied=False)
    for layer in module.model.layers:
        layer.self_attn.q_proj.bias = mx.arange(128, dtype=mx.float32)
    expected = logits(module)

    class Stock(Watching):
        def matmul(self, layer: Any, x: mx.array) -> Any:
            return mx.quantized_matmul(
                x, layer.weight, layer.scales, layer.biases, group_size=32, bits=4
            )

    with Hooks(module).handled(Stock()):
        assert mx.array_equal(logits(module), expected)


def test_a_pass_leaves_the_model_as_it_was() -> None:
    module = quantized.model()
    before = places(module)
    with Hooks(module).handled(Watching()):
        assert places(module) != before
        assert isinstance(module.model.layers[0].self_attn.q_proj, QuantizedLayer)
        assert bound() is not base.scaled_dot_product_attention
        assert module.model.layers[0].self_attn.q_proj.bits == 4, "the layer's own attributes"
    assert places(module) == before
    assert bound() is base.scaled_dot_product_attention


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_so_does_a_pass_that_fails(error: type[BaseException]) -> None:
    module = quantized.model()
    before = places(module)

    class Failing(Watching):
        def attention(self, *_: Any) -> None:
            raise error

    with pytest.raises(error), Hooks(module).handled(Failing()):
        logits(module)
    assert places(module) == before


def test_other_models_of_the_same_kind_are_let_through() -> None:
    target, draft = quantized.model(seed=1), quantized.model(seed=2)
    expected = logits(draft)
    watching, done = Watching(), threading.Event()
    found: list[mx.array] = []

    def drafting() -> None:
        with mx.stream(mx.new_stream(mx.default_device())):
            found.append(logits(draft))
        done.set()

    with Hooks(target).handled(watching):
        threading.Thread(target=drafting).start()
        assert done.wait(60)
    assert mx.array_equal(found[0], expected)
    assert (watching.matmuls, watching.attentions) == (0, 0)


def test_two_threads_with_one_model_see_their_own_handlers() -> None:
    module = quantized.model()
    before = places(module)
    first, second = Watching(), Watching()
    inside, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with mx.stream(mx.new_stream(mx.default_device())), Hooks(module).handled(second):
            inside.set()
            assert leave.wait(60)
            logits(module)
        left.set()

    thread = threading.Thread(target=other)
    with Hooks(module).handled(first):
        thread.start()
        assert inside.wait(60)
        logits(module)
    assert places(module) != before, "the second pass still holds the places"
    logits(module)
    assert first.matmuls == 15
    assert second.matmuls == 0
    leave.set()
    thread.join(60)
    assert left.is_set()
    assert (first.matmuls, second.matmuls) == (15, 15)
    assert places(module) == before


def test_many_threads_at_once_leave_nothing() -> None:
    module = quantized.model()
    before, expected = places(module), logits(module)
    wrong: list[str] = []

    def passes() -> None:
        with mx.stream(mx.new_stream(mx.default_device())):
            for _ in range(20):
                watching = Watching()
                with Hooks(module).handled(watching):
                    out = logits(module)
                if watching.matmuls != 15 or not mx.array_equal(out, expected).item():
                    wrong.append(f"{watching.matmuls} products")

    threads = [threading.Thread(target=passes) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert places(module) == before
