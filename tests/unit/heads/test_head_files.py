"""Which files are a head, of which kind, and what is said of those that do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from headfiles import EAGLE, eagle_tensors, mtp_tensors, target_of, written
from mtpfiles import PACKAGINGS, Made
from tinymodels import tiny

from macspec.assets import pocket as built_in
from macspec.errors import ModelBrokenError, PairMismatchError
from macspec.heads import LoadedHead, head_in, open_head, own_head, packing
from macspec.heads.mtp import MTP
from macspec.heads.naming import depths_of, kind_of
from macspec.models import Pair, load_pair

Tensors = dict[str, mx.array]


@pytest.mark.parametrize(
    ("kind", "config", "names"),
    [
        ("mtp", {}, ["fc.weight", "pre_fc_norm_hidden.weight", "layers.0.mlp.up_proj.weight"]),
        ("mtp", {}, ["model.layers.61.eh_proj.weight", "model.layers.61.hnorm.weight"]),
        (
            "mtp",
            {},
            [f"model.mtp_layers.0.{it}.weight" for it in ("input_proj", "hidden_layernorm")],
        ),
        ("mtp", {}, ["d2t", "fc.weight", "pre_fc_norm_hidden.weight"]),
        ("eagle", {}, ["d2t", "fc.weight", "layers.0.hidden_norm.weight"]),
        (
            "eagle",
            {"speculators_model_type": "peagle"},
            ["fc.weight", "layers.0.hidden_norm.weight"],
        ),
        (None, {}, ["model.layers.0.self_attn.q_proj.weight", "mtp.fc.weight", "mtp.hnorm.weight"]),
        (None, {}, []),
    ],
)
def test_the_kind_of_a_folder(kind: str | None, config: dict[str, str], names: list[str]) -> None:
    assert kind_of(config, names) == kind


def test_packagings_have_one_form() -> None:
    deepseek = {"enorm": 1, "hnorm": 2, "eh_proj": 3, "shared_head.norm": 4, "mlp.gate": 5}
    names = {f"model.layers.61.{name}.weight": number for name, number in deepseek.items()}
    second = {"model.layers.62.eh_proj.weight": 8, "model.layers.62.enorm.weight": 9}
    assert depths_of(names | second) == [
        {
            "embedding_norm.weight": 1,
            "hidden_norm.weight": 2,
            "project.weight": 3,
            "norm.weight": 4,
            "layers.0.mlp.gate.weight": 5,
        },
        {"project.weight": 8, "embedding_norm.weight": 9},
    ]
    # Two blocks of one depth, as Nemotron has them; two depths that share a projection, as Qwen.
    assert depths_of({"mtp.layers.0.eh_proj.weight": 1, "mtp.layers.1.norm.weight": 2}) == [
        {"project.weight": 1, "layers.1.norm.weight": 2}
    ]
    assert depths_of({"mtp.fc.weight": 1, "mtp.layers.0.a.b": 2, "mtp.layers.1.a.b": 3}) == [
        {"project.weight": 1, "layers.0.a.b": 2},
        {"project.weight": 1, "layers.0.a.b": 3},
    ]


def test_a_target_brings_its_head_along(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    shutil.copytree(built_in().target, folder)
    pair = load_pair(str(folder), context=64)
    assert pair.head is None
    tensors = mtp_tensors(pair.target.module, 320)
    mx.save_safetensors(str(folder / "mtp.safetensors"), tensors)
    pair = load_pair(str(folder), context=64)
    assert pair.head is not None
    assert pair.head.kind == "mtp"
    assert pair.draft is None
    assert pair.plan.weights > pair.target.weight_bytes
    assert own_head("x", folder, 8) is not None


def test_a_head_is_given_as_a_draft_model_is(tmp_path: Path) -> None:
    module = load_pair(context=64).target.module
    folder = written(tmp_path / "head", mtp_tensors(module, 320), {"model_type": "llama_mtp"})
    pair = load_pair(str(built_in().target), str(folder), context=64)
    assert pair.head is not None
    assert pair.draft_off is None
    assert pair.notices == ()
    other = written(tmp_path / "other", mtp_tensors(module, 320), {"made_for": "owner/Other-1B"})
    (said,) = load_pair(str(built_in().target), str(other), context=64).notices
    assert said == f"the head {other} was made for owner/Other-1B"
    narrow = written(tmp_path / "narrow", mtp_tensors(tiny("llama")), {"model_type": "llama_mtp"})
    pair = load_pair(str(built_in().target), str(narrow), context=64)
    assert pair.head is None
    assert pair.draft_off is not None
    assert "it is for rows of 64 numbers, and the target's have 320" in pair.draft_off
    with pytest.raises(PairMismatchError):
        load_pair(str(built_in().target), str(narrow), context=64, require_draft=True)


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {it: array for it, array in tensors.items() if name not in it}


def cut(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: tensors[name][:-1]}


def renamed(name: str, other: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {it.replace(name, other): array for it, array in tensors.items()}


def knowing(name: str) -> Callable[[Tensors], Tensors]:
    """With a tensor that has a row for each of 70 ids."""
    return lambda tensors: tensors | {name: mx.zeros((70, 64))}


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("mtp", without("up_proj"), "lacks layers.0.mlp.up_proj.weight"),
        ("mtp", without("norm_embedding"), "lacks its embedding_norm weight"),
        ("mtp", cut("mtp.fc.weight"), "its project.weight is"),
        ("mtp", lambda it: it | {"mtp.fc.weight": mx.zeros((0, 128))}, "has an empty tensor"),
        ("mtp", renamed("k_proj", "key"), "no layer of attention"),
        ("mtp", lambda it: it | {"mtp.extra.weight": mx.zeros(2)}, "has an unknown tensor"),
        ("mtp", lambda it: it | {"mtp.layers.1.x.weight": mx.zeros(2)}, "no layer of attention"),
        ("mtp", lambda it: it | {"d2t": mx.arange(40) + 61}, "names ids that the target lacks"),
        ("mtp", knowing("mtp.embed_tokens.weight"), "knows 70 ids, and the target 61"),
        ("mtp", knowing("mtp.lm_head.weight"), "knows 70 ids, and the target 61"),
        ("eagle", without("fc.weight"), "lacks fc.weight"),
        ("eagle", renamed("up_proj", "up"), "has an unknown tensor, layers.0.mlp.up.weight"),
        ("eagle", without("d2t"), "knows 40 ids, and the target 61"),
        ("eagle", knowing("t2d"), "knows 70 ids, and the target 61"),
        ("eagle", knowing("embed_tokens.weight"), "knows 70 ids, and the target 61"),
        ("eagle", lambda it: it | {"fc.weight": it["fc.weight"][:60]}, "for rows of 60 numbers"),
        ("eagle", without("up_proj"), "lacks layers.0.mlp.up_proj.weight"),
        ("eagle", cut("lm_head.weight"), "names 40 ids of the target for 39"),
        ("eagle", lambda it: it | {"d2t": it["d2t"] + 90}, "names ids that the target lacks"),
        ("eagle", lambda it: it | {"layers.2.x.weight": mx.zeros(2)}, "lacks layers.1.input_layer"),
        ("eagle", lambda it: it | {"mask_hidden": mx.zeros((1, 192))}, "several tokens at once"),
    ],
)
def test_what_does_not_fit_is_refused(
    pocket: Pair, tmp_path: Path, kind: str, change: Callable[[Tensors], Tensors], said: str
) -> None:
    tensors = mtp_tensors(tiny("llama")) if kind == "mtp" else eagle_tensors()
    written(tmp_path, change(tensors), {} if kind == "mtp" else EAGLE)
    files = head_in("a head", tmp_path)
    assert files is not None
    with pytest.raises(PairMismatchError, match=said):
        open_head(files, target_of(pocket, "llama"))


def test_a_vocabulary_that_only_the_configuration_tells(pocket: Pair, tmp_path: Path) -> None:
    target = target_of(pocket, "llama")
    target = replace(target, config={**target.config, "vocab_size": 61})
    config = {"model_type": "llama_mtp", "text_config": {"vocab_size": 70}}
    files = head_in("a head", written(tmp_path, mtp_tensors(tiny("llama")), config))
    assert files is not None
    with pytest.raises(PairMismatchError, match="knows 70 ids, and the target 61"):
        open_head(files, target)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_attention_heads": None},
        {"num_attention_heads": "many"},
        {"num_attention_heads": 0, "head_dim": 0},
        {"intermediate_size": 10**30},
        {"rope_scaling": {"rope_type": "linear"}},
        {"rope_parameters": 3},
        {"eagle_config": 3, "eagle_aux_hidden_state_layer_ids": None},
        {"eagle_aux_hidden_state_layer_ids": {"a": 1}},
        {"transformer_layer_config": [1]},
    ],
)
def test_settings_that_cannot_be(pocket: Pair, tmp_path: Path, settings: dict[str, Any]) -> None:
    files = head_in("a head", written(tmp_path, eagle_tensors(), EAGLE | settings))
    assert files is not None
    with pytest.raises(PairMismatchError, match=r"^the head a head is off: it [^\n]*$"):
        open_head(files, target_of(pocket, "llama"))


def test_layers_that_the_target_lacks(pocket: Pair, tmp_path: Path) -> None:
    config = EAGLE | {"eagle_aux_hidden_state_layer_ids": [1, 11, 21]}
    files = head_in("a head", written(tmp_path, eagle_tensors(), config))
    assert files is not None
    with pytest.raises(
        PairMismatchError, match=r"reads layers \[1, 11, 21\] of a target that has 2"
    ):
        open_head(files, target_of(pocket, "llama"))


def test_a_truncated_file(tmp_path: Path) -> None:
    written(tmp_path, mtp_tensors(tiny("llama")), {})
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ModelBrokenError, match="truncated"):
        head_in("a head", tmp_path)


@pytest.mark.parametrize("stored", [0.0, 1.0])
def test_norms_stored_minus_one(pocket: Pair, tmp_path: Path, stored: float) -> None:
    tensors = mtp_tensors(tiny("qwen3_5"))
    raw = {name: it - (it.ndim == 1) * (1 - stored) for name, it in tensors.items()}
    files = head_in("a head", written(tmp_path, raw, {}))
    assert files is not None
    head = open_head(files, target_of(pocket, "qwen3_5")).module
    assert isinstance(head, MTP)
    assert mx.allclose(head.depths[0].norm.weight, tensors["mtp.norm.weight"])
    assert mx.allclose(
        head.layers[0].input_layernorm.weight, tensors["mtp.layers.0.input_layernorm.weight"]
    )


MODES = {"affine": (64, 8), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


@pytest.mark.parametrize("mode", MODES)
def test_a_quantized_head(pocket: Pair, tmp_path: Path, mode: str) -> None:
    """Beside one of what its numbers stand for."""
    group, bits = MODES[mode]
    small: Tensors = {}
    whole: Tensors = {}
    for name, array in mtp_tensors(tiny("llama")).items():
        if array.ndim == 1 or array.shape[-1] % group:
            small[name] = whole[name] = array
            continue
        parts = mx.quantize(array, group, bits, mode)
        whole[name] = mx.dequantize(*parts, group_size=group, bits=bits, mode=mode)
        ends = ("weight", "scales", "biases")
        small |= {name.replace("weight", end): it for end, it in zip(ends, parts, strict=False)}
    heads = []
    for number, tensors in enumerate((small, whole)):
        files = head_in("a head", written(tmp_path / str(number), tensors, {}))
        assert files is not None
        heads.append(open_head(files, target_of(pocket, "llama")))
    assert heads[0].weight_bytes < 0.7 * heads[1].weight_bytes
    assert_alike(heads)


def test_projections_that_are_quantized_in_different_ways(pocket: Pair, tmp_path: Path) -> None:
    small = dict(eagle_tensors())
    whole = dict(small)
    for name, bits in (("q_proj", 4), ("k_proj", 8)):
        stem = f"midlayer.self_attn.{name}."
        parts = mx.quantize(small[f"{stem}weight"], group_size=32, bits=bits)
        whole[f"{stem}weight"] = mx.dequantize(*parts, group_size=32, bits=bits)
        small |= zip((f"{stem}{it}" for it in ("weight", "scales", "biases")), parts, strict=True)
    heads = []
    for number, tensors in enumerate((small, whole)):
        files = head_in("a head", written(tmp_path / str(number), tensors, EAGLE))
        assert files is not None
        heads.append(open_head(files, target_of(pocket, "llama")))
    assert heads[0].weight_bytes < heads[1].weight_bytes
    assert_alike(heads)


def assert_alike(heads: list[LoadedHead], least: float = 1e-4) -> None:
    x = mx.random.normal((1, 3, 64), key=mx.random.key(0))
    for depths in zip(*(it.module.depths for it in heads), strict=True):
        outs = [it(x, x, it.make_cache()) for it in depths]
        assert mx.abs(outs[0] - outs[1]).max().item() < least


@pytest.mark.parametrize("name", PACKAGINGS)
def test_each_packaging_of_mtp_heads_quantized(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a folder of its own, as ``models quantize`` makes it."""
    monkeypatch.setattr(packing, "SMALL", 0)
    tensors = Made(PACKAGINGS[name]).tensors
    small = packing.packed(tensors, 8, 32)
    whole = {it: a for it, a in small.items() if not it.endswith((".scales", ".biases"))}
    for it in [it.removesuffix("scales") for it in small if it.endswith(".scales")]:
        parts = (small[it + end] for end in ("weight", "scales", "biases"))
        whole[f"{it}weight"] = mx.dequantize(*parts, group_size=32, bits=8)
    heads = []
    for number, parts in enumerate((small, whole, tensors)):
        files = head_in("a head", written(tmp_path / str(number), parts, {}))
        assert files is not None
        heads.append(open_head(files, target_of(pocket, PACKAGINGS[name].family)))
    assert_alike(heads[:2])
    assert_alike(heads[1:], 0.1)
    assert heads[0].weight_bytes < 0.7 * heads[1].weight_bytes


def test_a_head_in_raw_fp8(pocket: Pair, tmp_path: Path) -> None:
    """As DeepSeek stores it: a scale for each block of 128 by 128."""
    raw: Tensors = {}
    whole: Tensors = {}
    for name, array in Made(PACKAGINGS["deepseek_v3"]).tensors.items():
        raw[name] = whole[name] = array
        if array.ndim == 2 and "proj" in name:
            scales = mx.full([-(-it // 128) for it in array.shape], 0.25)
            raw[name] = mx.to_fp8(array / 0.25)
            raw[f"{name}_scale_inv"] = scales
            whole[name] = 0.25 * mx.from_fp8(raw[name], mx.float32)
    heads = []
    for number, tensors in enumerate((raw, whole)):
        folder = written(tmp_path / str(number), tensors, {})
        files = own_head("a target", folder, 2)
        assert files is not None
        heads.append(open_head(files, target_of(pocket, "deepseek_v3")))
    assert_alike(heads)
