"""The catalogue: its numbers follow from the models' shapes, and its pairs fit their Macs."""

from __future__ import annotations

import datetime
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from macspec.bench.published import published
from macspec.choices import BLOCKS
from macspec.errors import BadOptionError
from macspec.models import memory
from macspec.models.catalog import (
    CONTEXT,
    SPARSE,
    USES,
    Entry,
    advised_draft,
    advised_head,
    best,
    catalogue,
    find,
    licence,
    non_commercial,
    shipped,
)
from macspec.models.machine import GIB, recommended_for
from macspec.models.pair import LARGE_DRAFT
from macspec.models.rollback import untried

SHAPES = json.loads((Path(__file__).parent / "shapes.json").read_text())
PAIRS = {pair.name: pair for pair in shipped()}


def shape_of(model: str) -> dict[str, Any]:
    """The configuration of the model that a quantized one was made from."""
    name = re.sub("-(MLX-)?(\\d+bit|MXFP4-Q8)$", "", model.rpartition("/")[2])
    shorter = name.replace("Meta-", "").replace("-Instruct", "")
    known = (it for it in (name, shorter, shorter.replace("-Coder", "")) if it in SHAPES)
    found = SHAPES[next(known)]
    return SHAPES[found] if isinstance(found, str) else found


def text_shape_of(model: str) -> dict[str, Any]:
    """That of its language model."""
    shape = shape_of(model)
    return shape.get("text_config", shape)


@cache
def built(model: str, precision: str) -> tuple[nn.Module, int]:
    """A model of that shape whose weights are never computed, and its context."""
    config = shape_of(model)
    module = import_module(f"mlx_lm.models.{config['model_type']}")
    made = module.Model(module.ModelArgs.from_dict(config))
    made.set_dtype(mx.bfloat16)
    rule = getattr(made, "quant_predicate", None) or (lambda path, part: True)
    bits = 8 if precision == "MXFP4-Q8" else int(precision.split()[0])

    def chosen(path: str, part: Any) -> Any:
        if not hasattr(part, "to_quantized"):
            return False
        if precision == "MXFP4-Q8" and "experts" in path:
            return {"group_size": 32, "bits": 4, "mode": "mxfp4"}
        return rule(path, part)

    nn.quantize(made, group_size=64, bits=bits, class_predicate=chosen)
    return made, int(text_shape_of(model)["max_position_embeddings"])


def vision_bytes(model: str) -> int:
    """The towers that a conversion keeps beside the language model; 0 without one."""
    tower: Any = shape_of(model).get("vision_config")
    if tower is None:
        return int(shape_of(model).get("unread_bytes", 0))
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
    return [
        memory.estimate_memory(*built(model, precision))
        for model, precision in zip(pair.models, pair.quantization, strict=True)
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
    for model, precision in zip(pair.models, pair.quantization, strict=True):
        made, _ = built(model, precision)
        assert untried(made).reason is None
    families = {str(text_shape_of(model)["model_type"]) for model in pair.models}
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
        ("mlx-community/Qwen3.5-122B-A10B-4bit", 69_593_314_272),
        ("mlx-community/Qwen3.5-397B-A17B-6bit", 322_946_674_272),
        ("mlx-community/GLM-4.7-4bit", 198_556_925_568),
    ],
)
def test_a_size_is_what_the_index_of_the_conversion_states(model, published):
    bits = model.rpartition("-")[2].replace("bit", " bits")
    weights = memory.estimate_memory(*built(model, bits)).weights + vision_bytes(model)
    # Some conversions store the experts' routers with other bits.
    assert abs(published - weights) < 3e-4 * published


def test_names_and_targets_are_unique():
    assert len(PAIRS) == len(shipped()) == len({pair.target for pair in shipped()})


def test_pairs_for_larger_macs_come_later():
    least = [pair.least for pair in shipped()]
    assert least == sorted(least)


@pytest.mark.parametrize("name", PAIRS)
def test_every_field_is_there(name):
    pair = PAIRS[name]
    assert pair.least is not None
    assert pair.fits(recommended_for(int(pair.least * GIB)))
    assert len(pair.quantization) == len(pair.licences) == len(pair.models)
    assert set(pair.uses) <= set(USES)
    assert all("/" in head for head in pair.heads.values())
    assert bool(pair.heads) == bool(pair.heads_source)
    assert pair.head_sizes.keys() <= pair.heads.keys()
    for model, text in zip(pair.models, pair.quantization, strict=True):
        assert model.endswith(text.replace(" bits", "bit"))
    assert set(pair.drafters) == {"suffix", "ngram"} | ({"draft"} if pair.draft else set())
    assert pair.date is not None
    assert "github.com/" in pair.source
    assert not pair.user


PROPOSED = {
    4: (None, None),
    8: ("qwen3.5-4b", "qwen3.5-4b"),
    16: ("qwen3.5-9b", "qwen3.5-9b"),
    18: ("qwen3.5-9b", "qwen3.5-9b"),
    24: ("gpt-oss-20b", "gpt-oss-20b"),
    32: ("qwen3.6-35b-a3b", "qwen3.8-27b"),
    36: ("qwen3.6-35b-a3b", "qwen3.8-27b"),
    48: ("qwen3.8-27b-8bit", "qwen3.8-27b-8bit"),
    64: ("qwen3-next-80b-a3b", "qwen3-coder-next"),
    96: ("qwen3.5-122b-a10b", "qwen3-coder-next-6bit"),
    128: ("qwen3.5-122b-a10b", "qwen3-coder-next-8bit"),
    192: ("qwen3-235b-a22b-2507", "qwen3-coder-next-8bit"),
    256: ("glm-4.7", "glm-4.7"),
    512: ("qwen3.5-397b-a17b-6bit", "qwen3-coder-480b-a35b"),
}
"""By the GB of a Mac: what is proposed to chat, and to write code."""


@pytest.mark.parametrize("memory", PROPOSED)
def test_the_proposals_for_a_mac(memory):
    for use, name in zip(USES, PROPOSED[memory], strict=True):
        pair = best(memory * GIB, use=use)
        assert (pair and pair.name) == name
        assert pair is None or pair.fits(recommended_for(memory * GIB))


def test_no_proposal_forbids_commercial_use():
    proposed = [pair for pair in shipped() if pair.uses]
    assert {use for pair in proposed for use in pair.uses} == set(USES)
    assert not [it.name for it in proposed if any(map(non_commercial, it.licences))]


def test_a_mac_that_others_hold_memory_of_gets_a_smaller_proposal():
    pair = best(64 * GIB, 30 * GIB)
    assert pair is not None
    assert pair.name == "qwen3.8-27b-8bit"
    assert best(64 * GIB, GIB) is None


def test_a_licence_is_known_or_where_to_read_it():
    assert licence("mlx-community/Qwen3-8B-4bit", shipped()) == "Apache-2.0"
    assert licence("mlx-community/Qwen3-8B-4bit@abc", shipped()) == "Apache-2.0"
    assert licence("mlx-community/GLM-4.7-4bit", shipped()).startswith("see huggingface.co/mlx-")
    assert licence("owner/other", shipped()) == "see huggingface.co/owner/other"


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("mlx-community/Qwen3-8B-4bit", "mlx-community/Qwen3-0.6B-4bit"),
        ("Qwen/Qwen3-8B", "mlx-community/Qwen3-0.6B-4bit"),
        ("someone/Qwen3-8B-MLX-8bit", "mlx-community/Qwen3-0.6B-4bit"),
        ("mlx-community/Qwen3.8-27B-mxfp8", "mlx-community/Qwen3.5-0.8B-4bit"),
        ("mlx-community/gpt-oss-20b-MXFP4-Q8", None),
        ("mlx-community/Qwen3-80B-4bit", None),
    ],
)
def test_a_draft_is_advised_in_any_precision_of_the_target(target, draft):
    assert advised_draft(target, shipped()) == draft


@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("mlx-community/Qwen3.8-27B-4bit", "dflash"),
        ("mlx-community/Qwen3-8B-bf16", "dspark"),
        ("mlx-community/Qwen3.6-27B-4bit", "mtp"),  # its DSpark head has 8.8 GB
        ("mlx-community/Qwen3.6-35B-A3B-8bit", "mtp"),
        ("mlx-community/Qwen3.5-9B-MLX-4bit", "mtp"),
        ("mlx-community/gemma-4-31b-it-4bit", "mtp"),
        ("mlx-community/gpt-oss-20b-MXFP4-Q8", "eagle"),
        ("mlx-community/Llama-3.1-8B-Instruct-8bit", "eagle"),
        ("mlx-community/Qwen3-Next-80B-A3B-Instruct-4bit", None),
    ],
)
def test_the_head_that_gains_most_is_advised(target: str, method: str | None) -> None:
    assert (advised_head(target, shipped()) or (None,))[0] == method


@pytest.mark.parametrize("kind", sorted(BLOCKS))
@pytest.mark.parametrize("name", ["m4-pro-27b-8bit", "m4-pro-27b-4bit", "m4-pro-35b-a3b-4bit"])
def test_block_heads_gain_most_unless_passes_are_cheap(name: str, kind: str) -> None:
    """By what was published of heads in 4 bits; those to be downloaded have 16."""
    (curve,) = (it for it in published() if it.name == name)

    def gain(drafter: str, bytes_read: float) -> float:
        known = curve.drafters[drafter]
        plain_steps = curve.cost(known.depth + 1) + bytes_read * known.step
        return mean(known.tokens) / plain_steps

    assert (gain(kind, 4) > gain("mtp", 1)) == (SPARSE.search(curve.model) is None)


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
        ({"heads": ["x/y"]}, "heads must be a table of strings"),
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
