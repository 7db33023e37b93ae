"""What turns a draft model off: each gate alone, on tokenizers that differ in one thing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from modelfolders import edited, shared_model

from macspec.models.loading import load_tokenizer, open_model
from macspec.models.memory import MemoryPlan
from macspec.models.pair import Model, Pair, notices
from macspec.models.vocabulary import (
    mismatch,
    splitting_mismatch,
    table_mismatch,
    translation,
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


def test_a_shifted_token_is_found_though_the_sizes_are_the_same(copy, original):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        vocabulary = content["model"]["vocab"]
        one, other = (next(t for t, i in vocabulary.items() if i == at) for at in (700, 701))
        content["model"]["merges"] = []
        vocabulary[one], vocabulary[other] = 701, 700
    reason = mismatch(original, tokenizer(folder))
    assert reason is not None
    assert f"token 700 is {one!r} in the target and {other!r} in the draft" in reason


def added(content, index, text, **flags):
    template = {**content["added_tokens"][0], "special": False, **flags}
    content["added_tokens"].append({**template, "id": index, "content": text})


def renamed(content, index, text):
    """Give an added token of the pocket tokenizer another name."""
    token = content["added_tokens"][index]
    content["model"]["vocab"][text] = content["model"]["vocab"].pop(token["content"])
    token["content"] = text


def one_more(content):
    added(content, 4096, "<think>")


def all_renamed(content):
    for index in range(6):
        renamed(content, index, f"<reserved {index}>")


def swapped(content):
    renamed(content, 3, "<|spare|>")
    renamed(content, 4, "<|user|>")
    renamed(content, 3, "<|assistant|>")


def strict_matching(content):
    for token, flag in zip(
        content["added_tokens"], ("lstrip", "rstrip", "single_word"), strict=False
    ):
        token[flag] = True


@pytest.mark.parametrize("change", [one_more, all_renamed, swapped, strict_matching])
def test_special_tokens_may_differ_or_be_missing(copy, original, change):
    folder = copy()
    with edited(folder / "tokenizer.json") as content:
        change(content)
    other = tokenizer(folder)
    assert mismatch(original, other) is None
    assert mismatch(other, original) is None


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


def test_another_family_is_found(copy, original):
    other = tokenizer(Path(shared_model("stories260K")))
    reason = table_mismatch(original, other)
    assert reason is not None
    assert "(4096 and 512 tokens)" in reason


@pytest.fixture
def pair(copy):
    return open_model("t", copy("target", "t")), open_model("d", copy("draft", "d"))


def test_the_pair_that_ships_needs_no_translation(pair):
    target, draft = pair
    assert mismatch(target.tokenizer, draft.tokenizer) is None
    assert translation(target, draft) is None
    # Padding beyond the tokenizer makes no difference.
    assert translation(target, dataclasses.replace(draft, width=4352)) is None


def changed(copy, change, name, **values) -> Model:
    folder = copy("draft", name)
    with edited(folder / "tokenizer.json") as content:
        change(content)
    return dataclasses.replace(open_model(name, folder), **values)


def unknown_of(target, draft) -> dict[int, int]:
    """The ids that the draft model does not know, and what it reads for them."""
    found = translation(target, draft)
    assert found is not None
    known, ids = found.known.tolist(), found.ids.tolist()
    assert all(read == i for i, (it, read) in enumerate(zip(known, ids, strict=True)) if it)
    assert all(read < draft.width for read in ids)
    unknown = {i: ids[i] for i, it in enumerate(known) if not it}
    assert len(unknown) == found.unknown
    return unknown


def test_a_wider_target_of_the_same_family_as_gemma_3_has(copy, pair):
    target = changed(copy, one_more, "wide", width=4160)
    assert vocabulary_of(target) == 4097
    line_break = target.tokenizer.encode("\n", add_special_tokens=False)[-1]
    assert unknown_of(target, pair[1]) == {4096: line_break}
    # The other way round nothing is unknown: the target cannot emit the last id.
    assert translation(pair[0], changed(copy, one_more, "d2", width=4160)) is None


def test_renamed_special_tokens_are_read_by_text_or_by_role(copy, pair):
    target, _ = pair
    assert unknown_of(target, changed(copy, swapped, "s")) == {3: 4, 4: 3}
    folder = copy("draft", "r")
    with edited(folder / "tokenizer.json") as content:
        all_renamed(content)
    with edited(folder / "tokenizer_config.json") as config:
        config.update(bos_token="<reserved 5>", eos_token="<reserved 1>", unk_token="<reserved 0>")
    found = unknown_of(target, open_model("r", folder))
    assert set(found) == set(range(6))
    assert (found[1], found[5]) == (5, 1)


def test_a_draft_with_fewer_rows_knows_fewer_ids(pair):
    target, draft = pair
    assert sorted(unknown_of(target, dataclasses.replace(draft, width=4000))) == [
        *range(4000, 4096)
    ]


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


def test_narrow_notice(pair):
    target, draft = pair
    assert says(target, dataclasses.replace(draft, width=4090), 512) == ""
    narrow = dataclasses.replace(draft, width=4000)
    assert "has embeddings for 4000 of the target's 4096 token ids" in says(target, narrow, 512)


def test_context_notice(pair):
    assert says(*pair, 2048) == ""
    assert "it stops drafting after 2048 tokens" in says(*pair, 2049)
