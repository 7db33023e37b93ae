"""What the files of block drafters say: packagings, traps, and what does not fit a target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from blockfiles import OWN, PACKAGINGS, Packaging, block_of, tensors_of
from headfiles import drawn, target_of, written
from mlx.utils import tree_flatten
from tinymodels import VOCABULARY

from macspec.errors import PairMismatchError
from macspec.heads import LoadedHead, head_in, open_head
from macspec.heads.block import Block
from macspec.heads.blockcheck import Comparison, settle
from macspec.heads.blockform import form_of
from macspec.models import Pair
from macspec.tap import Tap

NAMES = {
    "z-lab": "z-lab",
    "dflash2": "z-lab",
    "deepspec": "DeepSpec",
    "deepspec-gemma": "DeepSpec",
    "bonsai": "Bonsai",
    "speculators": "speculators",
    "speculators-causal": "speculators",
    "speculators-dflash": "speculators",
    "specforge": "SpecForge",
    "liquid": "LiquidAI",
    "nvidia": "NVIDIA",
    "native": "qwen3_5-native",
}


@pytest.mark.parametrize("name", PACKAGINGS)
def test_packagings_are_told_apart(tmp_path: Path, name: str) -> None:
    form = PACKAGINGS[name]
    files = head_in("a head", written(tmp_path, tensors_of(form), dict(form.config)))
    assert files is not None
    assert (files.kind, files.packaging) == (form.kind, NAMES[name])


@pytest.mark.parametrize(
    ("name", "config", "first"),
    [
        ("speculators", {"speculators_config": {}}, 1),
        ("speculators", {"speculators_config": {}, "sample_from_anchor": True}, 0),
        (
            "speculators",
            {"speculators_config": {"proposal_methods": [{"speculative_tokens": 6}]}},
            0,
        ),
        ("specforge", {"sample_from_anchor": False}, 0),
        ("deepspec", {}, 0),
        ("deepspec", {"sample_from_anchor": False}, 1),
        ("z-lab", {"sample_from_anchor": True}, 0),
    ],
)
def test_the_first_row_that_guesses(name: str, config: dict[str, Any], first: int) -> None:
    form = PACKAGINGS[name]
    read = form_of({**form.config, **config}, tensors_of(form), 2, VOCABULARY)
    assert read.first == first


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("z-lab", {"dflash_config": {**OWN, "mask_token_id": 151669}}, "for another family"),
        (
            "deepspec",
            {"target_layer_ids": [1, 9, 17]},
            r"reads layers \[1, 9, 17\] of a target that has 2",
        ),
        ("deepspec", {"target_layer_ids": [0, 1]}, "reads 192 numbers of 2 layers of 64"),
        ("deepspec", {"block_size": None}, "has no block_size"),
        ("deepspec", {"block_size": 10**6}, "has blocks of 1000000 tokens"),
        ("deepspec", {"target_layer_ids": {"a": 1}, "architectures": 3}, "invalid literal"),
        ("deepspec", {"rope_parameters": 3, "dflash_config": "x"}, "that cannot be read"),
        (
            "speculators",
            {"num_attention_heads": None, "transformer_layer_config": {}},
            "has no num",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    pocket: Pair, tmp_path: Path, name: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(PairMismatchError, match=said):
        block_of(pocket, "llama", name, tmp_path, **config)


@pytest.mark.parametrize(
    ("name", "lost", "said"),
    [
        ("z-lab", "norm.weight", "lacks norm.weight"),
        ("deepspec", "layers.1.mlp.up_proj.weight", "lacks layers.1.mlp.up_proj.weight"),
        ("deepspec", "layers.1.self_attn.k_proj.weight", "lacks layers.1.self_attn.k_proj.weight"),
        ("speculators", "d2t", "does not say which of the target's they are"),
        ("specforge", "d2t", "does not say which of the target's they are"),
    ],
)
def test_a_missing_tensor(pocket: Pair, tmp_path: Path, name: str, lost: str, said: str) -> None:
    form = PACKAGINGS[name]
    tensors = {it: array for it, array in tensors_of(form).items() if it != lost}
    files = head_in("a head", written(tmp_path, tensors, dict(form.config)))
    assert files is not None
    with pytest.raises(PairMismatchError, match=said):
        open_head(files, target_of(pocket, "llama"))


def test_layer_ids_counted_from_one() -> None:
    form = PACKAGINGS["z-lab"]
    config = {**form.config, "dflash_config": {**OWN, "target_layer_ids": [1, 2, 2]}}
    read = form_of(config, tensors_of(form), 2, VOCABULARY)
    assert read.taps == (0, 1, 1)
    assert read.notes


def test_what_a_block_drafter_costs(pocket: Pair, tmp_path: Path) -> None:
    """Of the target's output head only the rows of the ids that it guesses."""
    target = target_of(pocket, "llama")
    head = block_of(pocket, "llama", "z-lab", tmp_path)
    own = sum(array.nbytes for _, array in tree_flatten(head.module.parameters()))
    assert head.step_bytes == head.weight_bytes == own + 40 * 64 * 4
    assert len(head.beside(target.estimate).layers) == len(target.estimate.layers) + 2


@pytest.mark.parametrize("name", PACKAGINGS)
def test_a_quantized_block_drafter(pocket: Pair, tmp_path: Path, name: str) -> None:
    form = PACKAGINGS[name]
    packed: dict[str, mx.array] = {}
    for it, array in tensors_of(form).items():
        if array.ndim != 2 or array.shape[-1] % 32 or not it.endswith("weight"):
            packed[it] = array
            continue
        ends = ("weight", "scales", "biases")
        parts = mx.quantize(array, group_size=32, bits=8)
        packed |= {it.replace("weight", end): part for end, part in zip(ends, parts, strict=True)}
    small = opened(pocket, tmp_path, packed, form)
    whole = block_of(pocket, "llama", name, tmp_path / "whole")
    assert small.kind == whole.kind
    assert small.weight_bytes < 0.7 * whole.weight_bytes
    guesses = [guessed(pocket, it.module) for it in (small, whole)]
    assert mx.abs(guesses[0] - guesses[1]).max().item() < 0.5


def test_numbers_as_nvidia_packs_them(pocket: Pair, tmp_path: Path) -> None:
    form = PACKAGINGS["nvidia"]
    packed: dict[str, mx.array] = {}
    plain = dict(tensors_of(form))
    for it in ("fc.weight", "layers.0.mlp.up_proj.weight", "markov_head.markov_w2.weight"):
        numbers, scales = mx.quantize(plain[it] / 0.5, 16, 4, "nvfp4")
        packed |= {it: numbers.view(mx.uint8), f"{it}_scale": scales}
        packed[f"{it}_scale_2"] = mx.array(0.5)
        plain[it] = 0.5 * mx.dequantize(numbers, scales, None, 16, 4, "nvfp4")
    heads = [opened(pocket, tmp_path / "packed", plain | packed, form)]
    heads.append(opened(pocket, tmp_path / "plain", plain, form))
    guesses = [guessed(pocket, it.module) for it in heads]
    assert mx.abs(guesses[0] - guesses[1]).max().item() < 1e-5
    del packed["fc.weight_scale"]
    with pytest.raises(PairMismatchError, match="without the numbers that it scales"):
        opened(pocket, tmp_path / "torn", plain | packed, form)


def opened(pocket: Pair, folder: Path, tensors: dict[str, mx.array], form: Packaging) -> LoadedHead:
    files = head_in("a head", written(folder, tensors, dict(form.config)))
    assert files is not None
    return open_head(files, target_of(pocket, "llama"))


def guessed(pocket: Pair, head: Block) -> mx.array:
    """Logits [n, guesses] of a block behind three rows."""
    tap = Tap(target_of(pocket, "llama").module, head.wanted)
    rows = mx.random.normal((1, 3, 64), key=mx.random.key(0))
    embedded = head.embedded(head.tokens(5, head.size), tap.embedding)
    return head.logits(head(rows, embedded[None], head.make_cache())[0], head.output(tap))


@pytest.fixture
def few_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macspec.heads.blockcheck.ANCHORS", 16)


class Truth:
    """Hidden rows of a text, and a target that chooses what a head guesses if read rightly."""

    def __init__(self, head: Block) -> None:
        self.start, self.stop, count = 0, 64, 64
        shapes: dict[str, tuple[int, ...]] = {str(it): (count, 64) for it in range(3)}
        self._rows = [*drawn(shapes, 5).values()]
        self.tap, self.tokens = self, [(7 * it * it + 3 * it) % VOCABULARY for it in range(65)]
        self._best = mx.zeros((count, VOCABULARY))
        for row in range(2):  # the second guesses follow the first ones
            comparison: Any = Comparison(head, self, self.tokens)  # type: ignore[arg-type]
            guesses = comparison.guesses()[row].tolist()
            for place, guess in zip(comparison.places, guesses, strict=True):
                if place + row < count:
                    self._best[place + row, guess] = 20.0
                    self.tokens[place + row + 1] = guess

    embedding = None

    def rows(self, start: int, stop: int) -> Sequence[mx.array]:
        return [it[start:stop] for it in (self._best, *self._rows)]

    def logits(self, rows: mx.array) -> mx.array:
        return rows


@pytest.mark.usefixtures("few_anchors")
@pytest.mark.parametrize(
    ("right", "wrong", "name", "value"),
    [
        ({}, {"sample_from_anchor": False}, "first", 0),
        ({"rope_is_neox_style": False}, {}, "traditional", True),
        ({}, {"model_type": "qwen3_5"}, "rotated", 1.0),
        ({}, {"shift": -1.0}, "shift", 1.0),
    ],
)
def test_what_files_say_wrongly_is_put_right(
    pocket: Pair,
    tmp_path: Path,
    right: dict[str, Any],
    wrong: dict[str, Any],
    name: str,
    value: Any,
) -> None:
    truth = Truth(block_of(pocket, "llama", "deepspec", tmp_path / "right", **right).module)
    sound = block_of(pocket, "llama", "deepspec", tmp_path / "again", **right).module
    assert settle(sound, truth, truth.tokens) is None  # type: ignore[arg-type]
    head = block_of(pocket, "llama", "deepspec", tmp_path / "wrong", **wrong).module
    assert getattr(head, name) != value
    told = settle(head, truth, truth.tokens)  # type: ignore[arg-type]
    assert told is not None
    assert told.startswith("is read in another way than its files say")
    assert getattr(head, name) == value


@pytest.mark.usefixtures("few_anchors")
def test_the_mask_of_another_family_is_reported_where_the_first_guess_does_without(
    pocket: Pair, tmp_path: Path
) -> None:
    truth = Truth(block_of(pocket, "llama", "deepspec", tmp_path / "right").module)
    head = block_of(pocket, "llama", "deepspec", tmp_path / "masked", mask_token_id=40).module
    told = settle(head, truth, truth.tokens)  # type: ignore[arg-type]
    assert told is not None
    assert "mask token" in told


@pytest.mark.usefixtures("few_anchors")
def test_a_head_of_another_family_is_reported(pocket: Pair, tmp_path: Path) -> None:
    truth = Truth(block_of(pocket, "llama", "deepspec", tmp_path / "right").module)
    other = block_of(pocket, "llama", "deepspec", tmp_path / "other", seed=9).module
    told = settle(other, truth, truth.tokens)  # type: ignore[arg-type]
    assert told is not None
    assert told.startswith("drafts badly: it agrees with the target on ")
