"""The catalogue: its numbers follow from the models' shapes, and its pairs fit their Macs."""

from __future__ import annotations

import datetime
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from macspec.errors import BadOptionError
from macspec.models import memory
from macspec.models.catalog import CONTEXT, Entry, best, catalogue, find, shipped
from macspec.models.machine import GIB, recommended_for
from macspec.models.pair import LARGE_DRAFT
from macspec.models.rollback import untried

SHAPES = json.loads((Path(__file__).parent / "shapes.json").read_text())
PAIRS = {pair.name: pair for pair in shipped()}


def shape_of(model: str) -> dict[str, object]:
    """The configuration of the model that a quantized one was made from."""
    name = model.rpartition("/")[2].replace("Meta-", "").replace("-Instruct", "")
    return SHAPES[name.replace("-MLX", "").replace("-Coder", "").rpartition("-")[0]]


@cache
def built(model: str, bits: int) -> tuple[nn.Module, int]:
    """A model of that shape whose weights are never computed, and its context."""
    config = shape_of(model)
    module = import_module(f"mlx_lm.models.{config['model_type']}")
    made = module.Model(module.ModelArgs.from_dict(config))
    made.set_dtype(mx.bfloat16)
    rule = getattr(made, "quant_predicate", None) or (lambda path, part: True)
    nn.quantize(
        made,
        group_size=64,
        bits=bits,
        class_predicate=lambda path, part: hasattr(part, "to_quantized") and rule(path, part),
    )
    return made, int(str(config["max_position_embeddings"]))


def vision_bytes(model: str) -> int:
    """The vision tower that a conversion keeps in 16 bits; 0 without one."""
    tower: Any = shape_of(model).get("vision_config")
    if tower is None:
        return 0
    hidden, inner = tower["hidden_size"], tower["intermediate_size"]
    merged = hidden * tower["spatial_merge_size"] ** 2
    patch = tower["in_channels"] * tower["temporal_patch_size"] * tower["patch_size"] ** 2
    linears = [(hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)]
    # Weights and biases, also of the two norms.
    block = sum((before + 1) * after for before, after in linears) + 4 * hidden
    merger = (merged + 1) * (merged + tower["out_hidden_size"]) + 2 * hidden
    embedding = (patch + 1 + tower["num_position_embeddings"]) * hidden
    return 2 * (embedding + tower["depth"] * block + merger)


def estimates(pair: Entry) -> list[memory.MemoryEstimate]:
    bits = [int(text.split()[0]) for text in pair.quantization]
    return [
        memory.estimate_memory(*built(model, bit))
        for model, bit in zip(pair.models, bits, strict=True)
    ]


@pytest.fixture
def metal(monkeypatch):
    monkeypatch.setattr(memory, "on_metal", lambda: True)


@pytest.mark.parametrize("name", PAIRS)
def test_the_numbers_follow_from_the_shapes(name, metal):
    pair = PAIRS[name]
    target, *drafts = estimates(pair)
    plan = memory.Demand(target, drafts[0] if drafts else None, 0).plan(CONTEXT)
    unread = sum(vision_bytes(model) for model in pair.models)
    assert pair.download == round((plan.weights + unread) / 1e9, 1)
    assert pair.memory_8k == round(plan.total / GIB, 1)


@pytest.mark.parametrize("name", PAIRS)
def test_the_gates_that_shapes_decide_hold(name):
    pair = PAIRS[name]
    bits = [int(text.split()[0]) for text in pair.quantization]
    for model, bit in zip(pair.models, bits, strict=True):
        made, _ = built(model, bit)
        assert untried(made).reason is None
    families = {str(shape_of(model)["model_type"]) for model in pair.models}
    assert len({re.sub("_(moe|next)$", "", family) for family in families}) == 1
    target, *drafts = estimates(pair)
    for draft in drafts:
        assert draft.weights <= LARGE_DRAFT * target.weights
        # A vocabulary is padded to some hundred ids, and its padding is never emitted.
        assert abs(target.width - draft.width) <= 256


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("lmstudio-community/Qwen3.6-27B-MLX-4bit", 16_054_262_240),
        ("lmstudio-community/Qwen3.6-35B-A3B-MLX-4bit", 20_401_929_952),
    ],
)
def test_a_size_is_what_the_index_of_the_conversion_states(model, published):
    assert memory.estimate_memory(*built(model, 4)).weights + vision_bytes(model) == published


def test_pairs_for_larger_macs_come_later():
    least = [pair.least for pair in shipped()]
    assert least == sorted(least)


@pytest.mark.parametrize("name", PAIRS)
def test_every_field_is_there(name):
    pair = PAIRS[name]
    assert pair.least is not None
    assert pair.fits(recommended_for(int(pair.least * GIB)))
    assert len(pair.quantization) == len(pair.models)
    for model, text in zip(pair.models, pair.quantization, strict=True):
        assert model.endswith(text.replace(" bits", "bit"))
    assert set(pair.drafters) == {"suffix", "ngram"} | ({"draft"} if pair.draft else set())
    assert pair.date is not None
    assert "github.com/" in pair.source
    assert not pair.user


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (4, None),
        (8, "qwen3-4b"),
        (16, "qwen3-8b"),
        (18, "qwen3-8b"),
        (24, "qwen3-14b"),
        (32, "qwen2.5-32b"),
        (48, "qwen2.5-32b"),
        (64, "qwen2.5-72b"),
        (96, "qwen2.5-72b-6bit"),
        (512, "qwen2.5-72b-6bit"),
    ],
)
def test_the_proposal_for_a_mac(memory, name):
    pair = best(memory * GIB)
    assert (pair and pair.name) == name


def test_a_mac_that_others_hold_memory_of_gets_a_smaller_proposal():
    pair = best(64 * GIB, 30 * GIB)
    assert pair is not None
    assert pair.name == "qwen2.5-32b"
    assert best(64 * GIB, GIB) is None


OWN = {"name": "mine", "target": "owner/large", "draft": "owner/small", "memory_8k": 3}


def test_the_users_pairs_come_first_and_replace():
    pairs = catalogue([OWN, {"name": "qwen3-8b", "target": "owner/other"}])
    assert pairs[0] == Entry("mine", "owner/large", "owner/small", memory_8k=3, user=True)
    assert pairs[1].models == ("owner/other",)
    assert pairs[1].fits(GIB) is None
    assert len(pairs) == len(PAIRS) + 1
    assert find("mine", pairs).fits(3 * GIB)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "a/b"}, "needs a name without a slash"),
        ({"name": None}, "needs a name"),
        ({"targett": "x"}, "unknown field targett: did you mean target"),
        ({"user": True}, "unknown field user"),
        ({"target": ""}, "target must be a string"),
        ({"memory_8k": "much"}, "memory_8k must be a number of GB above 0"),
        ({"least": True}, "least must be a number"),
        ({"drafters": "draft"}, "drafters must be a list of strings"),
        ({"date": datetime.datetime(2026, 1, 1)}, "date must be a date like"),
    ],
)
def test_a_table_that_cannot_be_used(changes, says):
    with pytest.raises(BadOptionError, match=says):
        catalogue([{**OWN, **changes}])


def test_a_target_is_needed_and_names_are_unique():
    with pytest.raises(BadOptionError, match="has no target"):
        catalogue([{"name": "mine"}])
    with pytest.raises(BadOptionError, match="two pairs in the settings are named mine"):
        catalogue([OWN, OWN])


def test_a_name_that_nobody_has():
    with pytest.raises(BadOptionError, match="did you mean qwen3-8b"):
        find("qwen3-8", shipped())
    with pytest.raises(BadOptionError, match="macspec models lists them"):
        find("zzz", shipped())
