"""What models cost in memory, and the plan against the memory that MLX says was in use."""

from __future__ import annotations

import gc
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import deepseek_v3, gpt_oss, llama, llama4, mamba, qwen3_moe
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache
from modelfolders import shared_model

from macspec import Sampling, Session, load_pair
from macspec.assets import pocket
from macspec.cache import CHECKPOINTS, ModelCache
from macspec.errors import OutOfMemoryError
from macspec.models import memory
from macspec.models.memory import STEP, LayerEstimate, MemoryEstimate, estimate_memory, fit
from macspec.models.prefill import PREFILL_CHUNK, PREFILL_CHUNKS
from macspec.recurrent import Recorder
from macspec.windowed import SLACK

MIXTURE: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 300,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
}


def make(module: Any, **settings: Any) -> Any:
    return module.Model(module.ModelArgs.from_dict({"model_type": "", **COMMON, **settings}))


def allocated(model: Any, tokens: int) -> int:
    cache = make_prompt_cache(model)
    model(mx.zeros((1, tokens), dtype=mx.int32), cache=cache)
    return sum(layer.nbytes for layer in cache)


@pytest.mark.parametrize("tokens", [1, 256, 257, 1000])
@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (llama, {}),
        (deepseek_v3, {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 16}),
    ],
)
def test_the_plan_counts_what_a_cache_allocates(module, settings, tokens):
    settings = {**settings, "v_head_dim": 32, "qk_nope_head_dim": 16, "n_routed_experts": None}
    model = make(module, **settings)
    assert estimate_memory(model, 4096).cache(tokens) == allocated(model, tokens)


def test_measuring_computes_nothing():
    model = make(llama)
    mx.eval(model.parameters())
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    estimate = estimate_memory(model, 4096)
    assert mx.get_peak_memory() - before < 10_000
    assert estimate.weights == sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    assert (estimate.width, estimate.itemsize) == (300, 4)
    # Query, key, value and output, then gate, up and down.
    assert estimate.outputs == 128 + 64 + 64 + 64 + 96 + 96 + 64
    assert [(layer.heads, layer.fused) for layer in estimate.layers] == [(4, False)] * 4


def test_of_the_experts_those_count_that_a_token_is_sent_to():
    dense = estimate_memory(make(llama), 4096).outputs
    sparse = estimate_memory(make(qwen3_moe, **MIXTURE), 4096).outputs
    routed = 3 * (48 + 48 + 64)
    assert sparse == dense - (96 + 96 + 64) + 8 + routed


@pytest.mark.parametrize("bits", [None, 4])
def test_of_the_experts_a_row_reads_those_that_it_is_sent_to(bits):
    model = make(qwen3_moe, **{**MIXTURE, "moe_intermediate_size": 64})
    if bits is not None:
        nn.quantize(model, bits=bits, group_size=32)
    estimate = estimate_memory(model, 4096)
    experts = sum(
        array.nbytes for path, array in tree_flatten(model.parameters()) if "switch_mlp" in path
    )
    assert estimate.active == estimate.weights - experts * 5 // 8
    dense = estimate_memory(make(llama), 4096)
    assert dense.active == dense.weights


def test_the_scores_are_kept_where_no_kernel_spares_them(monkeypatch):
    models = make(llama, head_dim=64), make(llama, head_dim=256)
    monkeypatch.setattr("macspec.models.memory.on_metal", lambda: True)
    fused, unfused = (estimate_memory(model, 4096) for model in models)
    assert (fused.layers[0].fused, unfused.layers[0].fused) == (True, False)
    assert fused.buffers(4096, 8) == fused.buffers(512) + 512 * 4 * 4 * 4096
    assert fused.buffers(512) == fused.buffers(4096)
    assert unfused.buffers(4096) - unfused.buffers(512) == 512 * 4 * 4 * (4096 - 512)


def test_half_precision_halves_the_cache():
    model = make(llama)
    full = estimate_memory(model, 4096).cache(1000)
    model.set_dtype(mx.bfloat16)
    assert estimate_memory(model, 4096).cache(1000) * 2 == full


def test_a_padded_vocabulary_is_the_width():
    assert estimate_memory(make(llama, vocab_size=320), 4096).width == 320


def test_windows_bound_their_layers():
    model = make(gpt_oss, num_local_experts=4, num_experts_per_tok=2, sliding_window=100)
    layers = estimate_memory(model, 10**6).layers
    expected = [
        100 if isinstance(cache, RotatingKVCache) else None for cache in make_prompt_cache(model)
    ]
    assert [layer.window for layer in layers] == expected
    assert expected.count(100) == 2
    position = 2 * 2 * 32 * 4
    held = -(-(100 + SLACK + PREFILL_CHUNK) // STEP) * STEP
    assert layers[0].bytes(10**6, None) == (1 + CHECKPOINTS) * held * position
    assert layers[0].checkpoints(10**6) == CHECKPOINTS * held * position
    assert layers[0].checkpoints(50) == layers[1].checkpoints(10**6) == 0
    assert layers[1].bytes(512, None) == 512 * position


def test_chunks_bound_their_layers():
    text = {
        **COMMON,
        "model_type": "llama4_text",
        "attention_chunk_size": 64,
        "attention_bias": False,
        "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 96,
        "no_rope_layers": [1, 1, 1, 0],
        "num_experts_per_tok": 1,
        "num_local_experts": 2,
        "rope_scaling": None,
        "use_qk_norm": True,
    }
    layers = estimate_memory(make(llama4, text_config=text), 4096).layers
    assert [layer.window for layer in layers] == [64, 64, 64, None]


def test_recurrent_layers_keep_their_size():
    model = make(
        mamba,
        state_size=8,
        conv_kernel=4,
        use_bias=False,
        use_conv_bias=True,
        time_step_rank=8,
    )
    estimate = estimate_memory(model, 4096)
    assert estimate.cache(1) == estimate.cache(4096) == (2 + CHECKPOINTS) * allocated(model, 3)


def test_a_row_of_a_pass_leaves_what_the_plan_says():
    model = make(
        mamba, state_size=8, conv_kernel=4, use_bias=False, use_conv_bias=True, time_step_rank=8
    )
    estimate, cache = estimate_memory(model, 4096), ModelCache(model)
    with Recorder(model).recording(7) as tape:
        mx.eval(model(mx.zeros((1, 7), mx.int32), cache=cache.layers))
    assert tape.nbytes == 7 * estimate.tape > 0


@pytest.mark.parametrize(("head", "group"), [(64, 64), (96, 32), (80, None)])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_caches_are_counted_as_quantized(head, group, bits):
    model = make(llama, head_dim=head)
    estimate = estimate_memory(model, 4096)
    cache = make_prompt_cache(model)
    model(mx.zeros((1, 300), dtype=mx.int32), cache=cache)
    real = 0
    for layer in cache:
        assert isinstance(layer, KVCache)
        if group is not None:
            layer = layer.to_quantized(group_size=group, bits=bits)
        real += sum(array.nbytes for _, array in tree_flatten([layer.keys, layer.values]))
    assert estimate.cache(300, bits) == real


def estimate(**changes: Any) -> MemoryEstimate:
    """A model whose cache costs 1,000 bytes a position and whose buffers cost nothing."""
    layer = LayerEstimate(values=500, itemsize=2)
    sizes = {"weights": 10**6, "active": 10**6, "width": 0, "outputs": 0}
    settings = {**sizes, "itemsize": 2, "context": 8192}
    return MemoryEstimate(**{**settings, "layers": (layer,), **changes})


@pytest.fixture
def limited(monkeypatch):
    def install(limit: int) -> None:
        monkeypatch.setattr(memory, "device_limit", lambda: limit)

    return install


FULL = 10**6 + 8192 * 1000


def test_what_fits_is_kept_whole(limited):
    limited(2 * FULL)
    plan, refused = fit(estimate(), estimate())
    assert (plan.context, plan.total, refused) == (8192, 2 * FULL, None)


def test_unasked_the_context_is_shortened_and_the_draft_kept(limited):
    limited(2 * FULL - 1)
    plan, refused = fit(estimate(), estimate())
    assert (plan.context, refused) == (8192 - STEP, None)
    limited(2 * (10**6 + 2048 * 1000))
    assert fit(estimate(), estimate())[0].context == 2048


def test_unasked_the_draft_goes_before_the_context_gets_tiny(limited):
    limited(2 * (10**6 + 2048 * 1000) - 1)
    plan, refused = fit(estimate(), estimate())
    assert plan.context == 4864
    assert refused is not None
    assert refused.total == 2 * FULL


def test_an_asked_context_is_kept_and_the_draft_left_out(limited):
    limited(FULL)
    plan, refused = fit(estimate(), estimate(), context=8192)
    assert (plan.context, plan.total) == (8192, FULL)
    assert refused is not None
    assert "caches for 8192 positions" in str(refused)


def test_an_asked_context_that_does_not_fit_is_refused_with_one_that_does(limited):
    limited(FULL - 1)
    with pytest.raises(OutOfMemoryError, match=r"choose a shorter context \(--context 7936 fits\)"):
        fit(estimate(), context=8192)


def test_a_short_model_may_be_shorter_than_the_least(limited):
    limited(10**6 + 512 * 1000)
    assert fit(estimate(context=512))[0].context == 512
    limited(10**6 + 512 * 1000 - 1)
    with pytest.raises(OutOfMemoryError, match="--context 256 fits"):
        fit(estimate(context=512))


def test_weights_alone_too_large(limited):
    limited(10**6)
    with pytest.raises(OutOfMemoryError) as caught:
        fit(estimate())
    assert str(caught.value) == (
        "the target needs 0.009 GB (weights 0.001 GB, caches for 8192 positions 0.008 GB, buffers "
        "0.000 GB) of the 0.001 GB available: choose a smaller or more quantized model"
    )


def test_prefill_passes_are_as_large_as_fits(limited):
    model = estimate(outputs=10)
    for rows in (2048, 1024, 512):
        limited(FULL + rows * 2 * 3 * 10)
        plan, _ = fit(model)
        assert (plan.context, plan.chunk) == (
            8192,
            rows,
        )  # a long context comes before large passes


def test_windows_grow_with_the_rows_of_a_prefill_pass():
    layer = LayerEstimate(values=500, itemsize=2, window=64)
    model = estimate(outputs=10, layers=(layer,) * 3)
    more = model.buffers(8192, chunk=2048) - model.buffers(8192, chunk=1024)
    assert more == 1024 * (2 * 3 * 10 + 3 * (1 + CHECKPOINTS) * 1000)


def test_only_the_targets_cache_is_quantized(limited):
    limited(10**9)
    layer = LayerEstimate(values=512, itemsize=2, group=64)
    model = estimate(layers=(layer,))
    plan, _ = fit(model, model, context=1024, kv_bits=4)
    assert plan.caches == 1024 * 512 * 2 + 1024 * (256 + 4 * 8)


def test_a_draft_holds_no_more_than_its_own_context(limited):
    limited(10**9)
    plan, _ = fit(estimate(), estimate(context=1024))
    assert plan.caches == (8192 + 1024) * 1000


def test_the_larger_pass_of_the_larger_model_is_counted(limited):
    limited(10**9)
    plan, _ = fit(estimate(width=1000, outputs=10), estimate(width=500))
    assert plan.buffers == 33 * 4 * 4 * 1000
    plan, _ = fit(estimate(width=1000, outputs=1000), estimate(width=500))
    assert plan.buffers == 2048 * 2 * 3 * 1000


@pytest.mark.parametrize(
    ("info", "limit"),
    [
        ({"max_recommended_working_set_size": 11 * 2**30, "memory_size": 2**34}, 11 * 2**30),
        ({"total_memory": 80 * 2**30, "free_memory": 2**30}, 80 * 2**30),
        ({"device_name": "CPU"}, 5 * 2**30),
    ],
    ids=["Metal", "CUDA", "CPU"],
)
def test_the_limit_is_what_mlx_tells_of_the_device(monkeypatch, info, limit):
    assert memory.device_limit() > 2**28
    monkeypatch.setattr(memory, "unified_memory", lambda: 5 * 2**30)
    monkeypatch.setattr(memory.mx, "device_info", lambda: info)
    assert memory.device_limit() == limit


def test_the_wired_limit_is_set_and_restored(monkeypatch):
    limits = []

    def set_wired_limit(limit: int) -> int:
        limits.append(limit)
        return 7

    monkeypatch.setattr(memory.mx, "set_wired_limit", set_wired_limit)
    with memory.wired():
        pass
    assert limits == []
    monkeypatch.setattr(memory.mx, "device_info", lambda: {"max_recommended_working_set_size": 99})
    with memory.wired():
        assert limits == [99]
    assert limits == [99, 7]


ROOM = 4
"""Positions left for the reply."""


def shipped() -> tuple[str, str]:
    return str(pocket().target), str(pocket().draft)


def small_chat() -> tuple[str, str]:
    return shared_model("chat-8.7M"), shared_model("chat-draft-0.6M")


@pytest.mark.parametrize("names", [shipped, small_chat])
@pytest.mark.parametrize("context", [512, pytest.param(None, marks=pytest.mark.slow)])
def test_the_plan_agrees_with_what_is_measured(names, context):
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    pair = load_pair(*names(), context=context)
    assert pair.draft is not None
    held = mx.get_active_memory() - before
    assert held == pytest.approx(pair.plan.weights, rel=0.001)
    session = Session(pair, method="draft", depth=4)
    for _ in PREFILL_CHUNKS:
        session.decoder.chunk.took(session.decoder.chunk.rows, 0.0)  # as after quick passes
    tokenizer = pair.target.tokenizer
    words = tokenizer.encode("The cat sat on a mat. " * pair.context, add_special_tokens=False)
    text = tokenizer.decode(words[: pair.context - ROOM])
    for _ in session.reply(text, Sampling(temperature=0.7, seed=1), raw=True):
        pass
    peak = mx.get_peak_memory() - before
    rest = mx.get_active_memory() - before
    assert rest == pytest.approx(pair.plan.weights + pair.plan.caches, rel=0.01)
    assert peak == pytest.approx(pair.plan.total, rel=0.05)
