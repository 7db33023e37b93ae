"""Loading a pair: what passes, what runs without its draft model, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from modelfolders import edited, shared_model

import macspec
from macspec import load_pair
from macspec.errors import (
    BadOptionError,
    MacspecError,
    ModelBrokenError,
    ModelNotFoundError,
    OutOfMemoryError,
    PairMismatchError,
)
from macspec.models import memory
from macspec.models.loading import open_model

RARE = "▁sim"
"""An ordinary token."""


@pytest.fixture
def other_vocabulary(copy):
    folder = copy("draft", "other")
    with edited(folder / "tokenizer.json") as content:
        vocabulary = content["model"]["vocab"]
        vocabulary["renamed"] = vocabulary.pop(RARE)
        content["model"]["merges"] = []
    return str(folder)


@pytest.fixture
def target(copy):
    return str(copy("target", "target"))


@pytest.fixture
def draft(copy):
    return str(copy("draft", "draft"))


def limit(monkeypatch, size: float) -> None:
    monkeypatch.setattr(memory, "device_limit", lambda: int(size))


def test_the_built_in_pair():
    pair = load_pair()
    assert (pair.target.name, pair.draft) == ("built-in target", None)
    assert (pair.head.name, pair.head.kind) == ("built-in head", "eagle")
    other = load_pair(draft="built-in")
    assert (other.draft.name, other.head) == ("built-in draft", None)
    assert (pair.vocabulary, pair.context, pair.draft_off) == (4096, 2048, None)
    assert pair.stop_ids == {5}
    assert len(pair.notices) == 1
    assert " --target " in pair.notices[0]


@pytest.mark.parametrize(("memory", "said"), [(2**30, "<folder"), (64 * 2**30, "models pull")])
def test_the_notice_names_a_pair_that_fits(
    monkeypatch: pytest.MonkeyPatch, memory: int, said: str
) -> None:
    monkeypatch.setattr("macspec.models.pair.unified_memory", lambda: memory)
    monkeypatch.setattr("macspec.models.memory.device_limit", lambda: memory * 3 // 4)
    notice = load_pair().notices[0]
    assert said in notice
    assert "\n" not in notice


def test_a_pair_of_folders(target, draft):
    pair = load_pair(target, draft, require_draft=True)
    assert (pair.target.name, pair.draft.name) == (target, draft)
    assert (pair.notices, pair.draft_off) == ((), None)
    logits = [model.module(mx.array([[0, 1]])) for model in (pair.target, pair.draft)]
    assert all(array.shape == (1, 2, 4096) for array in logits)


def test_a_target_alone(target):
    pair = load_pair(target)
    assert (pair.draft, pair.draft_off, pair.notices) == (None, None, ())


def test_the_pair_of_shared_data():
    pair = load_pair(shared_model("chat-8.7M"), shared_model("chat-draft-0.6M"))
    assert pair.draft is not None
    assert pair.stop_ids == {3}


def test_several_stop_ids():
    assert load_pair(shared_model("stories260K")).stop_ids == {1, 2}


def test_another_vocabulary_turns_the_draft_off(target, other_vocabulary):
    pair = load_pair(target, other_vocabulary)
    assert pair.draft is None
    assert pair.draft_off.startswith(f"the draft model {other_vocabulary} is off: its vocabulary")
    assert f"is {RARE!r} in the target and 'renamed' in the draft" in pair.draft_off
    with pytest.raises(PairMismatchError, match=r"token \d+ .*choose a draft model of the target"):
        load_pair(target, other_vocabulary, require_draft=True)


def test_a_renamed_special_token_is_translated(target, copy):
    folder = copy("draft", "renamed")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / file).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace("<|user|>", "<|human|>"), encoding="utf-8")
    pair = load_pair(target, str(folder), require_draft=True)
    assert pair.draft is not None
    assert pair.translation.unknown == 1
    assert load_pair(target, target).translation is None


def test_another_family_turns_the_draft_off(target):
    assert "its vocabulary differs" in load_pair(target, shared_model("stories260K")).draft_off


def test_another_normaliser_turns_the_draft_off(target, copy):
    folder = copy("draft", "other")
    with edited(folder / "tokenizer.json") as content:
        content["normalizer"] = {"type": "NFKC"}
    assert "splits text differently" in load_pair(target, str(folder)).draft_off


def test_a_draft_that_is_off_takes_no_memory(target, other_vocabulary, monkeypatch):
    limit(monkeypatch, memory.Demand(*estimates(target), None, 0).plan(2048).total)
    assert "vocabulary" in load_pair(target, other_vocabulary, context=2048).draft_off
    assert load_pair(target, other_vocabulary).context == 2048


def test_a_draft_that_is_off_is_never_read(target, other_vocabulary, monkeypatch):
    read = []
    monkeypatch.setattr("macspec.models.pair.read_weights", lambda model, _: read.append(model))
    load_pair(target, other_vocabulary)
    assert [model.name for model in read] == [target]


def test_the_vocabulary_ends_where_the_tokenizer_or_the_embedding_does(copy):
    folder = copy("draft", "longer")
    with edited(folder / "tokenizer.json") as content:
        content["added_tokens"].append({**content["added_tokens"][0], "id": 4096, "content": "<x>"})
    assert load_pair(str(folder)).vocabulary == 4096
    folder = copy("draft", "padded")
    weights = mx.load(str(folder / "model.safetensors"))
    key = "model.embed_tokens.weight"
    weights[key] = mx.pad(weights[key], ((0, 64), (0, 0)))
    mx.save_safetensors(str(folder / "padded.safetensors"), weights)
    (folder / "padded.safetensors").replace(folder / "model.safetensors")
    with edited(folder / "config.json") as config:
        config["vocab_size"] = 4160
    pair = load_pair(str(folder), str(folder))
    assert (pair.target.width, pair.vocabulary) == (4160, 4096)
    assert pair.draft is not None
    # A padded draft drafts for a target that is not, and the other way round.
    assert load_pair(None, str(folder)).draft is not None


def test_stop_ids_outside_the_vocabulary_are_dropped(copy):
    folder = copy("target", "strange")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5000, -1]}))
    assert load_pair(str(folder)).stop_ids == {2, 5}


def test_no_stop_id_is_said(copy):
    folder = copy("target", "endless")
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        with edited(folder / file) as content:
            content.pop("eos_token_id", None)
            content.pop("eos_token", None)
    pair = load_pair(str(folder))
    assert pair.stop_ids == frozenset()
    assert "defines no end-of-turn token" in pair.notices[0]


def test_a_large_draft_is_allowed_and_said(target, draft):
    assert "100% of the target's parameters" in load_pair(target, target).notices[0]
    pair = load_pair(draft, target)
    assert pair.draft is not None
    assert "1055% of the target's parameters" in pair.notices[0]


def test_a_draft_with_a_shorter_context_is_allowed_and_said(target, copy):
    folder = copy("draft", "short")
    with edited(folder / "config.json") as config:
        config["max_position_embeddings"] = 128
    pair = load_pair(target, str(folder))
    assert pair.draft.context == 128
    assert "it stops drafting after 128 tokens" in pair.notices[0]
    assert load_pair(target, str(folder), context=128).notices == ()


def test_an_asked_context(target):
    assert load_pair(target, context=100).context == 100
    assert load_pair(target, context=2048).context == 2048
    for context, says in (
        (2049, "supports at most 2048 positions"),
        (0, "at least 1"),
        (-5, "at least 1"),
    ):
        with pytest.raises(BadOptionError, match=f"--context {context}: .*{says}"):
            load_pair(target, context=context)


def test_a_context_beyond_what_the_target_was_made_for(target):
    pair = load_pair(target, context=5000, beyond=True)
    assert (pair.context, pair.target.context) == (5000, 2048)
    assert "supports 2048 positions: from there to 5000" in pair.notices[0]
    assert pair.plan.caches > 2 * load_pair(target).plan.caches
    assert load_pair(target, context=2048, beyond=True).notices == ()


@pytest.mark.parametrize("kv_bits", [0, 1, 7, 16])
def test_kv_bits_that_mlx_has_not(kv_bits):
    with pytest.raises(BadOptionError, match=f"--kv-bits {kv_bits}: choose one of 2, 4, 8"):
        load_pair(kv_bits=kv_bits)


def test_method_draft_without_a_draft(target):
    with pytest.raises(BadOptionError, match="add --draft"):
        load_pair(target, require_draft=True)
    assert load_pair(require_draft=True).draft is not None


def test_too_little_memory_for_the_draft(target, draft, monkeypatch):
    alone = memory.Demand(*estimates(target), None, 0).plan(512).total
    limit(monkeypatch, alone)
    pair = load_pair(target, draft, context=512)
    assert pair.draft is None
    assert "is off: target and draft need 0." in pair.draft_off
    assert "caches for 512 positions" in pair.draft_off
    with pytest.raises(PairMismatchError, match=r"GB.*choose a smaller draft model"):
        load_pair(target, draft, context=512, require_draft=True)


def estimates(folder):
    return [open_model("model", Path(folder)).estimate]


def test_too_little_memory_for_the_target(target, draft, monkeypatch):
    limit(monkeypatch, 10**6)
    monkeypatch.setattr("macspec.models.pair.read_weights", lambda *_: pytest.fail("was read"))
    with pytest.raises(OutOfMemoryError, match=r"the target needs 0\.\d+ GB \(weights 0\.019 GB"):
        load_pair(target, draft)


def test_a_context_shortened_to_fit_is_said(copy, monkeypatch):
    folder = copy("target", "long")
    with edited(folder / "config.json") as config:
        config["max_position_embeddings"] = 131_072
    limit(monkeypatch, memory.Demand(*estimates(folder), None, 0).plan(65_536).total)
    pair = load_pair(str(folder))
    assert pair.context == 65_536
    assert "the context is 65536 of the model's 131072 positions" in pair.notices[0]
    with pytest.raises(OutOfMemoryError, match="--context 65536 fits"):
        load_pair(str(folder), context=131_072)
    eight, four = (load_pair(str(folder), kv_bits=bits).context for bits in (8, 4))
    assert 65_536 < eight < four < 131_072


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_model_that_is_not_there_is_an_error_for_either(target, role):
    names = {"target": target, role: "/no/such/folder"}
    with pytest.raises(ModelNotFoundError, match="/no/such/folder: no such folder"):
        load_pair(**names)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_broken_model_is_an_error_for_either(target, tmp_path, role):
    names = {"target": target, role: str(tmp_path)}
    with pytest.raises(ModelBrokenError, match=r"has no config\.json"):
        load_pair(**names)


def test_messages_are_one_neutral_line():
    error = MacspecError("first\nsecond\x1b[31m\ttab")
    assert str(error) == "first second␛[31m tab"


def test_the_weights_are_as_the_files_have_them(draft):
    loaded = dict(tree_flatten(load_pair(draft).target.module.parameters()))
    stored = mx.load(f"{draft}/model.safetensors")
    assert loaded.keys() == stored.keys()
    assert all(mx.array_equal(loaded[key], stored[key]) for key in stored)


def test_importing_macspec_is_light():
    code = (
        "import sys, macspec, macspec.models, macspec.errors\n"
        "heavy = {'mlx', 'mlx_lm', 'textual', 'transformers', 'huggingface_hub', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_public_names_are_all_there():
    for name in macspec.__all__:
        assert getattr(macspec, name) is not None
    assert set(macspec.__all__) <= set(dir(macspec))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        macspec.nothing  # noqa: B018
