"""Which draft model fits which target, and why not."""

from __future__ import annotations

from pathlib import Path

from modelfolders import POCKET, edited, shared_model

from macspec.models.matches import Match, candidate, matches


def opened(*folders):
    return [candidate(name, folder) for name, folder in folders]


def test_the_built_in_pair_fits_one_way():
    found = list(matches(opened(("t", POCKET / "target"), ("d", POCKET / "draft"))))
    assert found == [Match("t", "d", None)]


def test_another_vocabulary_and_a_model_that_does_not_load(copy):
    other, broken = copy("draft", "other"), copy("draft", "broken")
    with edited(other / "tokenizer.json") as tokenizer:
        tokenizer["added_tokens"][0]["content"] = "<|else|>"
    (broken / "model.safetensors").write_bytes(b"")
    candidates = opened(("t", POCKET / "target"), ("o", other), ("b", broken))
    assert candidates[2].model is None
    assert "is cut off" in (candidates[2].reason or "")
    (found,) = matches(candidates)
    assert (found.target, found.draft) == ("t", "o")
    assert (found.reason or "").startswith("its vocabulary is another one")


def test_models_of_others():
    names = ("chat-8.7M", "chat-draft-0.6M", "stories260K")
    found = {
        (it.target, it.draft): it.reason
        for it in matches(opened(*((name, _path(name)) for name in names)))
    }
    assert found[names[0], names[1]] is None
    assert found[names[0], names[2]] is not None
    assert len(found) == 3


def _path(name: str) -> Path:
    return Path(shared_model(name))
