"""MetalKernels: kernels are reached from stock models, by choice, in this pass alone."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
import quantized
from harness import installed
from mlx import nn
from mlx_lm.models import base, llama
from mlx_lm.models.switch_layers import SwitchLinear

from macspec import Sampling, Session
from macspec.cache import ModelCache
from macspec.errors import BadOptionError, ModelBrokenError
from macspec.kernels import Kernels
from macspec.metal.dispatch import MetalKernels, kernels_for
from macspec.metal.hooks import Hooks, QuantizedLayer
from macspec.metal.matmul import FLOATS, Matmul
from macspec.metal.outcomes import Outcome, Outcomes
from macspec.metal.variants import Choice, Variant, variants_for, workload
from macspec.metal.verify_attention import Attention
from macspec.models import Pair
from macspec.models.cached import CachedModel, TreePass
from macspec.verification import Tree

FASTER = Outcome(None, seconds=1.0, mlx_seconds=2.0)
SLOWER = Outcome(None, seconds=2.0, mlx_seconds=1.0)
WRONG = Outcome("off by 1.0e-01 of the largest value")
PROMPT = "Tell me a story about a dog and a cat"


@pytest.fixture(scope="module")
def pair() -> Pair:
    return quantized.pair()


def all_faster(pair: Pair, **how: Any) -> MetalKernels:
    found, asked = variants_for(pair, **how)
    return MetalKernels(pair.target.module, dict.fromkeys(asked, FASTER), found.unsupported)


@pytest.fixture(scope="module")
def kernels(pair: Pair) -> MetalKernels:
    return all_faster(pair)


class Watching:
    """Leaves everything to MLX and counts."""

    def __init__(self) -> None:
        self.matmuls = self.attentions = 0

    def matmul(self, layer: Any, x: mx.array) -> None:
        self.matmuls += 1

    def attention(self, *_: Any) -> None:
        self.attentions += 1


def places(module: Any) -> list[Any]:
    """Everything that a pass changes."""
    return [*layers(module), bound()]


def layers(node: Any) -> list[Any]:
    children = enumerate(node) if isinstance(node, list) else node.items()
    found = []
    for _, child in children:
        found.append(id(child))
        if isinstance(child, dict | list):
            found.extend(layers(child))
    return found


def bound() -> Any:
    return llama.scaled_dot_product_attention


def logits(module: Any, rows: int = 4) -> mx.array:
    tokens = mx.arange(rows)[None] % 61
    out: mx.array = module(tokens, cache=ModelCache(module).layers)
    mx.eval(out)
    return out


# ---- the places ---------------------------------------------------------------------------------


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


# ---- what a pair asks for -----------------------------------------------------------------------


def test_a_workload_finds_what_passes_multiply_and_attend() -> None:
    found = workload(quantized.model(vocabulary=96, dtype=mx.float16))
    assert set(found.matmuls) == {
        Matmul(4, 32, 64, 128, mx.float16),
        Matmul(4, 32, 64, 64, mx.float16),
        Matmul(4, 32, 128, 64, mx.float16),
        Matmul(4, 32, 64, 96, mx.float16),
    }
    assert found.attentions == {Attention(2, 1, 64, 64, mx.float16)}
    assert found.logits == mx.float16
    assert found.unsupported == []


class Direct(nn.Module):
    """A layer that calls MLX's attention itself, with an expert and a dense matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.QuantizedEmbedding(64, 64)
        self.dense = nn.Linear(64, 64)
        self.experts = SwitchLinear(64, 64, 2).to_quantized(group_size=64, bits=4)
        self.layers = [self.dense]

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        x = self.dense(self.embed(tokens))
        heads = x[:, None]
        mixed = mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=1.0)[:, 0]
        which = mx.zeros((*tokens.shape, 1), mx.uint32)
        chosen = self.experts(mixed[..., None, None, :], which)
        return self.embed.as_linear(chosen.reshape(x.shape))


def test_a_workload_says_what_keeps_mlxs_kernels() -> None:
    kept = " | ".join(workload(Direct()).unsupported)
    for words in ("attention: the model calls it", "experts:", "not quantized"):
        assert words in kept


@pytest.mark.parametrize("mode", FLOATS)
def test_matrices_of_small_floats_have_kernels(mode: str) -> None:
    module = nn.Sequential(nn.Linear(64, 64, bias=False))
    nn.quantize(module, mode=mode, group_size=FLOATS[mode][1], bits=FLOATS[mode][0])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [module]

        def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
            return module(mx.broadcast_to(tokens[..., None], (*tokens.shape, 64)) * 1.0)

    model, tokens = Model(), mx.array([[2, 3, 5]])
    shape = Matmul(*FLOATS[mode], 64, 64, mx.float32, mode)
    assert set(workload(model).matmuls) == {shape}
    kernels = MetalKernels(model, {Variant("verify_qmv", shape, 3): FASTER})
    with installed(inspected=False) as names, kernels.passing(3):
        out = model(tokens)
    assert names == ["verify_qmv"]
    assert mx.allclose(out, model(tokens), rtol=1e-4, atol=1e-4)


# ---- which kernel -------------------------------------------------------------------------------


def launched(kernels: MetalKernels, module: Any, rows: int) -> collections.Counter[str]:
    with installed(inspected=False) as names, kernels.passing(rows):
        logits(module, rows)
    return collections.Counter(names)


def test_only_what_is_right_and_faster_is_launched(pair: Pair) -> None:
    module = pair.target.module
    _found, asked = variants_for(pair)
    one = Matmul(4, 32, 64, 128, mx.float32)
    outcomes = dict.fromkeys(asked, SLOWER)
    chosen = Variant("verify_qmv", one, 4)
    kernels = MetalKernels(module, {**outcomes, chosen: FASTER})
    assert launched(kernels, module, 4) == {"verify_qmv": 2 * 3}, "q, gate and up of two layers"
    assert not launched(kernels, module, 5)
    assert not launched(kernels, module, 1)
    assert not launched(MetalKernels(module, {**outcomes, chosen: WRONG}), module, 4)
    assert not launched(MetalKernels(module, {}), module, 4)


def test_of_two_kernels_the_faster_is_taken(pair: Pair) -> None:
    module = pair.target.module
    one = Matmul(4, 32, 64, 128, mx.float32)
    qmv, qmm = Variant("verify_qmv", one, 8), Variant("verify_qmm", one, 8)
    for fast, slow, name in ((qmv, qmm, "verify_qmv"), (qmm, qmv, "verify_qmm")):
        kernels = MetalKernels(
            module, {slow: Outcome(None, 0.9, 1.0), fast: Outcome(None, 0.5, 1.0)}
        )
        assert set(launched(kernels, module, 8)) == {name}


def test_rows_between_two_measured_numbers_count_as_the_next(pair: Pair) -> None:
    module = pair.target.module
    one = Matmul(4, 32, 64, 128, mx.float32)
    kernels = MetalKernels(module, {Variant("verify_qmm", one, 12): FASTER})
    assert {rows: bool(launched(kernels, module, rows)) for rows in (8, 9, 12, 13)} == {
        8: False,
        9: True,
        12: True,
        13: False,
    }


def test_attention_depends_on_rows_and_context(pair: Pair) -> None:
    shape = Attention(2, 1, 64, 64, mx.float32)
    at = replace(shape, length=1024)
    kernels = MetalKernels(pair.target.module, {Variant("verify_attention", at, 4): FASTER})
    assert kernels.attends(shape, 3, 500)
    assert not kernels.attends(shape, 2, 500)
    assert not kernels.attends(shape, 5, 500)
    assert not kernels.attends(shape, 4, 8000)
    assert not kernels.attends(shape, 17, 500)
    assert not kernels.attends(replace(shape, dtype=mx.float16), 4, 500)


@pytest.mark.parametrize("what", ["mask", "sinks", "batch", "keys of another type", "no mask"])
def test_attention_of_another_kind_stays_with_mlx(kernels: MetalKernels, what: str) -> None:
    queries = mx.zeros((2 if what == "batch" else 1, 2, 4, 64))
    keys = mx.zeros((queries.shape[0], 1, 9, 64))
    if what == "keys of another type":
        keys = keys.astype(mx.float16)
    mask = {"mask": mx.ones((4, 9), mx.bool_), "no mask": None}.get(what, "causal")
    sinks = mx.zeros((2,)) if what == "sinks" else None
    with installed() as names, kernels.passing(4):
        bound()(queries, keys, keys.astype(mx.float32), None, 1.0, mask, sinks)
    assert not names


def test_strict_takes_only_products_in_mlxs_order(pair: Pair) -> None:
    built_in = quantized.pair(bits=3)
    _, asked = variants_for(built_in, strict=True)
    assert {variant.kernel for variant in asked} == {
        "verify_qmv_strict",
        "accept",
        "draft_sample",
    }
    module = built_in.target.module
    kernels = MetalKernels(module, dict.fromkeys(asked, SLOWER), strict=True)
    for rows in (2, 8, 9, 17):
        assert launched(kernels, module, rows) == {"verify_qmv_strict": 15}, rows
    wrong = MetalKernels(module, dict.fromkeys(asked, WRONG), strict=True)
    assert not launched(wrong, module, 4)


def test_the_key_is_that_of_the_choice(pair: Pair, kernels: MetalKernels) -> None:
    _, asked = variants_for(pair)
    module = pair.target.module
    assert kernels.key == all_faster(pair).key
    assert MetalKernels(module, dict.fromkeys(asked, SLOWER)).key == Kernels.key
    one_less = {**dict.fromkeys(asked, FASTER), asked[0]: SLOWER}
    assert len({kernels.key, MetalKernels(module, one_less).key, Kernels.key}) == 3


def test_notices_name_what_is_wrong_and_count_what_is_slow(pair: Pair) -> None:
    _, asked = variants_for(pair)
    outcomes = {**dict.fromkeys(asked, FASTER), asked[0]: WRONG, asked[1]: SLOWER}
    kernels = MetalKernels(pair.target.module, outcomes, ["experts: kept"])
    assert kernels.notices[0] == "experts: kept"
    assert kernels.notices[1].startswith(str(asked[0]))
    assert "off by" in kernels.notices[1]
    assert kernels.notices[2] == "1 shape: MLX's kernel is as fast or faster"


# ---- whole replies ------------------------------------------------------------------------------


def reply(pair: Pair, kernels: Kernels | str, rule: str, sampling: Sampling, **how: Any) -> Any:
    session = Session(pair, method="draft", depth=how.pop("depth", 4), rule=rule, kernels=kernels)
    *_, last = session.reply(PROMPT, sampling, max_tokens=how.pop("tokens", 8), raw=True)
    return last.token_ids, last.stats.drafted


REPLIES = [
    ("match", Sampling(temperature=0)),
    ("keyed", Sampling(temperature=0.8, seed=5)),
    ("block", Sampling(temperature=0.8, seed=5, top_k=40, top_p=0.9)),
    ("match", Sampling(temperature=0.8, seed=5, min_p=0.01)),
    ("block", Sampling(temperature=0.8, seed=5, repetition_penalty=1.2)),
]


@pytest.mark.parametrize(("rule", "sampling"), REPLIES)
def test_a_reply_by_kernels_is_the_reply_without(
    pair: Pair, kernels: MetalKernels, rule: str, sampling: Sampling
) -> None:
    expected, drafted = reply(pair, "off", rule, sampling)
    with installed(inspected=False) as names:
        assert reply(pair, kernels, rule, sampling) == (expected, drafted)
    assert drafted > 0
    used = {"verify_qmv", "verify_attention"}
    if not sampling.penalised:
        block = rule == "block"
        used |= {"accept_measure", "accept_block", "draft_sample"} if block else {"accept_draw"}
    assert used <= set(names)
    assert ("accept_walk" in names) or rule == "block"


def test_a_reply_in_instrumented_kernels_has_no_fault(pair: Pair, kernels: MetalKernels) -> None:
    sampling = Sampling(temperature=0.8, seed=5)
    expected = reply(pair, "off", "keyed", sampling, tokens=5)
    with installed() as names:
        assert reply(pair, kernels, "keyed", sampling, tokens=5) == expected
    assert names


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 7, 12, 20])
@pytest.mark.parametrize(("rule", "sampling"), REPLIES)
def test_replies_at_other_depths(
    pair: Pair, kernels: MetalKernels, rule: str, sampling: Sampling, depth: int
) -> None:
    expected = reply(pair, "off", rule, sampling, depth=depth, tokens=20)
    with installed(inspected=False):
        assert reply(pair, kernels, rule, sampling, depth=depth, tokens=20) == expected


def test_two_sessions_of_one_pair_in_turn(pair: Pair, kernels: MetalKernels) -> None:
    sampling = Sampling(temperature=0.8, seed=5)
    expected, _ = reply(pair, "off", "keyed", sampling)
    before = places(pair.target.module)
    ours = Session(pair, method="draft", depth=4, rule="keyed", kernels=kernels)
    stock = Session(pair, method="draft", depth=4, rule="keyed", kernels="off")
    with installed(inspected=False) as names:
        ending = {}
        replies = {
            session: session.reply(PROMPT, sampling, max_tokens=8, raw=True)
            for session in (ours, stock)
        }
        while replies:
            for session, events in list(replies.items()):
                count = len(names)
                event = next(events, None)
                assert session is ours or len(names) == count, "the other session launched"
                assert places(pair.target.module) == before, "between two rounds"
                if event is None:
                    ending[session] = session.finished
                    del replies[session]
    assert [ending[session].token_ids for session in (ours, stock)] == [expected, expected]
    assert names


@pytest.mark.parametrize("parents", [(-1, 0, 0, 2), (-1, -1, 0, 1, 1, 4)])
def test_a_trees_pass_by_kernels(
    pair: Pair, kernels: MetalKernels, parents: tuple[int, ...]
) -> None:
    tree = Tree(mx.arange(7, 7 + len(parents), dtype=mx.uint32), parents)
    unread = mx.array([3, 4], mx.uint32)
    outcomes = []
    for choice in (Kernels(), kernels):
        target = CachedModel(pair.target.module, pair.vocabulary, kernels=choice)
        with installed(inspected=False) as names:
            trees = TreePass(target)
            assert trees.reason is None
            target.read([5, 6, 7, 8, 9])
            outcomes.append(trees.logits(unread, tree))
    assert "verify_attention" in names
    assert mx.allclose(*outcomes, rtol=1e-4, atol=1e-4).item()


def test_a_quantized_cache_is_attended_to_where_it_lies(pair: Pair, kernels: MetalKernels) -> None:
    replies = []
    # Without kernels, with those of a plain cache, and with its own.
    for choice in (Kernels(), kernels, all_faster(pair, kv_bits=8)):
        session = Session(pair, method="draft", depth=4, kv_bits=8, kernels=choice)
        with installed(inspected=False) as names:
            *_, _ = session.reply(PROMPT, Sampling(temperature=0), max_tokens=6, raw=True)
        assert session.finished is not None
        replies.append((session.finished.token_ids, "verify_attention" in names))
    tokens = replies[0][0]
    assert replies == [(tokens, False), (tokens, False), (tokens, True)]


def test_a_broken_pass_ends_the_reply_with_one_clear_line(pair: Pair) -> None:
    module = quantized.model(vocabulary=pair.vocabulary)
    module.model.norm.weight = module.model.norm.weight * mx.nan
    broken = replace(pair, target=replace(pair.target, module=module))
    before = places(module)
    session = Session(broken, method="draft", depth=2, kernels=all_faster(broken))
    sampling = Sampling(temperature=0.8)
    with installed(inspected=False), pytest.raises(ModelBrokenError) as caught:
        list(session.reply(PROMPT, sampling, max_tokens=6, raw=True))
    assert "not numbers" in str(caught.value)
    assert places(module) == before


# ---- modes --------------------------------------------------------------------------------------


@pytest.mark.skipif(mx.metal.is_available(), reason="needs a machine that is no Mac")
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_without_metal_everything_is_mlxs(pair: Pair, mode: str) -> None:
    chosen = kernels_for(pair, mode)
    assert type(chosen) is Kernels
    assert "no Metal" in chosen.state
    assert Session(pair, kernels=mode).kernels.key == "mlx"


def test_with_metal_a_pair_gets_what_passed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def passed(jobs: Any, known: Outcomes) -> Iterator[Any]:
        known.found.update({str(variant): FASTER for variant, _ in jobs})
        yield from ()

    monkeypatch.setattr("macspec.metal.dispatch.on_metal", lambda: True)
    monkeypatch.setattr("macspec.metal.dispatch.self_check", passed)
    chosen = kernels_for(pair)
    assert isinstance(chosen, MetalKernels)
    assert not chosen.strict
    strict = kernels_for(pair, "strict")
    assert isinstance(strict, MetalKernels)
    assert strict.strict


def test_a_pair_that_cannot_be_checked_is_no_reason_not_to_chat(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("[metal] no such thing")

    monkeypatch.setattr("macspec.metal.dispatch.on_metal", lambda: True)
    monkeypatch.setattr("macspec.metal.dispatch.variants_for", fails)
    chosen = kernels_for(pair)
    assert type(chosen) is Kernels
    assert "no such thing" in chosen.state


def test_off_is_off_and_nonsense_is_refused(pair: Pair) -> None:
    assert "switched off" in kernels_for(pair, "off").state
    with pytest.raises(BadOptionError, match="auto, off, strict"):
        Session(pair, kernels="fast")


def test_choices_are_told_apart_by_rule_and_truncation(pair: Pair) -> None:
    shapes = {Choice("drawn", True, pair.vocabulary, mx.float32): FASTER}
    outcomes = {Variant("accept", shape, 5): outcome for shape, outcome in shapes.items()}
    kernels = MetalKernels(pair.target.module, outcomes)
    for sampling, used in (
        (Sampling(temperature=0.8, seed=5, top_p=0.9), True),
        (Sampling(temperature=0.8, seed=5), False),
        (Sampling(temperature=0, top_p=0.9), False),
    ):
        with installed(inspected=False) as names:
            reply(pair, kernels, "keyed", sampling, tokens=3)
        assert bool(names) is used
