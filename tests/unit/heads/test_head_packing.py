"""Heads made smaller: kept beside a target that is quantized, read as they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from blockfiles import PACKAGINGS, tensors_of
from headfiles import EAGLE, eagle_tensors, mtp_tensors, target_of, written

from macspec import load_pair
from macspec.assets import pocket as built_in
from macspec.errors import BadOptionError
from macspec.heads import head_in, open_head, packing
from macspec.models import Pair
from macspec.models.conversion import convert

FC, NORM = "mtp.fc.weight", "mtp.norm.weight"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SMALL", 4096)


def test_a_target_keeps_its_head(pocket: Pair, tmp_path: Path) -> None:
    tensors = mtp_tensors(pocket.target.module, 320)
    whole = Path(shutil.copytree(built_in().target, tmp_path / "whole"))
    mx.save_safetensors(str(whole / "mtp.safetensors"), tensors)
    made = convert(str(whole), str(tmp_path / "made"), bits=4, head_bits=4)
    pair = load_pair(str(made), context=64)
    assert pair.head is not None
    assert pair.head.kind == "mtp"
    kept: Any = mx.load(str(made / "mtp.safetensors"))
    assert kept[FC].shape == (320, 640 * 8 // 32)
    assert mx.array_equal(kept[NORM], tensors[NORM])
    unpacked = mx.dequantize(kept[FC], kept["mtp.fc.scales"], kept["mtp.fc.biases"], 64, 8)
    assert mx.allclose(unpacked, tensors[FC], atol=0.02)
    plain = convert(str(whole), str(tmp_path / "plain"), dtype="float16")
    unchanged: Any = mx.load(str(plain / "mtp.safetensors"))
    assert mx.array_equal(unchanged[FC], tensors[FC])


@pytest.mark.parametrize("kind", ["mtp", "eagle", "dspark"])
def test_a_head_alone(pocket: Pair, tmp_path: Path, kind: str) -> None:
    block = PACKAGINGS["deepspec"]
    tensors, config = {
        "mtp": lambda: (mtp_tensors(target_of(pocket, "llama").module), {}),
        "eagle": lambda: (eagle_tensors(), EAGLE),
        "dspark": lambda: (tensors_of(block), dict(block.config)),
    }[kind]()
    source = written(tmp_path / "Tiny-MTP", tensors, config)
    made = convert(str(source), str(tmp_path / "made"), bits=4, head_bits=8, group=32)
    heads = []
    for folder in (source, made):
        files = head_in("a head", folder)
        assert files is not None
        heads.append(open_head(files, target_of(pocket, "llama")))
    assert heads[1].weight_bytes < 0.75 * heads[0].weight_bytes
    modules: Any = [it.module.depths[0] for it in heads]
    x = mx.random.normal((1, 3, 64), key=mx.random.key(0))
    outs = [it(x, x, it.make_cache()) for it in modules]
    assert mx.abs(outs[0] - outs[1]).max().item() < 0.2
    with pytest.raises(BadOptionError, match="is already quantized"):
        convert(str(made), str(tmp_path / "again"), head_bits=8)


def test_experts_are_packed_as_mlx_lm_has_them() -> None:
    key = mx.random.key(1)
    gate, up, down = mx.random.normal((3, 4, 32, 64), key=key)
    fused = {"l.mlp.experts.gate_up_proj": mx.concatenate([gate, up], axis=1)}
    fused |= {"l.mlp.experts.down_proj": down, "l.mlp.gate.weight": mx.ones((128, 64))}
    numbered = {
        f"l.mlp.experts.{expert}.{name}.weight": array[expert]
        for name, array in (("gate_proj", gate), ("up_proj", up), ("down_proj", down))
        for expert in (3, 0, 2, 1)
    }
    one, other = packing.packed(fused, 8), packing.packed(numbered, 8)
    assert one.pop("l.mlp.gate.weight").shape == (128, 64)
    assert one.keys() == other.keys()
    for name in ("gate_proj", "up_proj", "down_proj"):
        stem = f"l.mlp.switch_mlp.{name}."
        assert mx.array_equal(one[f"{stem}weight"], other[f"{stem}weight"])
    parts = (one[f"l.mlp.switch_mlp.up_proj.{it}"] for it in ("weight", "scales", "biases"))
    assert mx.allclose(mx.dequantize(*parts, 64, 8), up, atol=0.03)
