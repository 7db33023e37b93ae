"""What turns a draft model off: each gate alone, on tokenizers that differ in one thing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from modelfolders import edited, shared_model

from macspec.models.loading import load_tokenizer, open_model
from macspec.models.memory import MemoryPlan
from macspec.models.pair import (
    Model,
    Pair,
    mismatch,
    notices,
    splitting_mismatch,
    table_mismatch,
    vocabulary_of,
)

BYTES = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def tokenizer(folder):
    return load_tokenizer("model", folder, {})


@pytest.fixture
def original(copy):
    return tokenizer(copy("draft", "original"))


def test_equal_tokenizers_pass(copy, original):
    assert table_mismatch(original, tokenizer(copy())) is None
    assert splitting_mismatch(original, tokenizer(copy("target", "other"))) is None


def test_one_renamed_token_is_found(copy, original):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        vocabulary = content["model"]["vocab"]
        name = next(text for text, index in vocabulary.items() if index == 1999)
        content["model"]["merges"] = []
        vocabulary["renamed"] = vocabulary.pop(name)
    reason = table_mismatch(original, tokenizer(folder))
    assert reason is not None
    assert f"token 1999 is {name!r} in the target and 'renamed' in the draft" in reason


def test_one_more_special_token_is_found(copy, original):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        content["added_tokens"].append({**content["added_tokens"][0], "id": 4096, "content": "<x>"})
    other = tokenizer(folder)
    for pair, sides in (
        ((original, other), "missing in the target and '<x>' in the draft"),
        ((other, original), "'<x>' in the target and missing in the draft"),
    ):
        reason = table_mismatch(*pair)
        assert reason is not None
        assert f"token 4096 is {sides}" in reason


def test_swapped_special_tokens_are_found_though_the_size_is_the_same(copy, original):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        user, assistant = content["added_tokens"][3:5]
        vocabulary = content["model"]["vocab"]
        user["content"], assistant["content"] = assistant["content"], user["content"]
        vocabulary["<|user|>"], vocabulary["<|assistant|>"] = 4, 3
    reason = table_mismatch(original, tokenizer(folder))
    assert reason is not None
    assert "token 3 is '<|user|>' in the target and '<|assistant|>' in the draft" in reason


def test_ids_with_holes_count_to_the_last(copy):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        content["model"]["vocab"]["far"] = 5000
        content["decoder"] = None  # mlx-lm's detokenizer for this decoder wants every id
    model = SimpleNamespace(tokenizer=tokenizer(folder), width=6000)
    assert vocabulary_of(model) == 5001
    model.width = 4096
    assert vocabulary_of(model) == 4096


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFKC"}},
        {"normalizer": {"type": "NFC"}},
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"normalizer": {"type": "StripAccents"}},
        {"pre_tokenizer": {**BYTES, "add_prefix_space": True}},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Digits", "individual_digits": True},
                    BYTES,
                ],
            }
        },
    ],
)
def test_the_same_table_with_other_splitting_is_found(copy, original, change):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        content.update(change)
    other = tokenizer(folder)
    assert table_mismatch(original, other) is None
    reason = splitting_mismatch(original, other)
    assert reason is not None
    assert "its tokenizer splits text differently: " in reason


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_special_tokens_that_match_differently_are_found(copy, original, flag):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        content["added_tokens"][3][flag] = True
    other = tokenizer(folder)
    assert table_mismatch(original, other) is None
    assert splitting_mismatch(original, other) is not None


def test_another_family_is_found(copy, original):
    other = tokenizer(Path(shared_model("stories260K")))
    reason = table_mismatch(original, other)
    assert reason is not None
    assert "token 1 is '<|bos|>' in the target and '<s>' in the draft (4096 and 512" in reason


@pytest.fixture
def pair(copy):
    return open_model("t", copy("target", "t")), open_model("d", copy("draft", "d"))


def test_why_not_passes_the_pair_that_ships(pair):
    target, draft = pair
    assert mismatch(target, draft) is None


def test_a_draft_without_rows_for_every_id_is_refused(pair):
    target, draft = pair
    reason = mismatch(target, dataclasses.replace(draft, width=4095))
    assert reason == "it has embeddings for 4095 token ids, but the target can emit 4096"
    # Padding beyond the tokenizer makes no difference.
    assert mismatch(target, dataclasses.replace(draft, width=4352)) is None


def says(target: Model, draft: Model, context: int) -> str:
    plan = MemoryPlan(context, 0, 0, 0, 0)
    pair = Pair(target, draft, 4096, context, None, (), frozenset({0}), plan)
    return " ".join(notices(pair, context))


def test_size_notice(pair):
    target, draft = pair
    assert says(target, draft, 512) == ""
    third = dataclasses.replace(draft, parameters=target.parameters // 3)
    assert says(target, third, 512) == ""
    larger = dataclasses.replace(draft, parameters=target.parameters // 3 + 1)
    assert "the draft model has 33% of the target's parameters" in says(target, larger, 512)
    assert "100%" in says(target, target, 512)


def test_context_notice(pair):
    assert says(*pair, 2048) == ""
    assert "it stops drafting after 2048 tokens" in says(*pair, 2049)
