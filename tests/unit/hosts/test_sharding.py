"""Which models can be spread over how many machines, and whether these have the same files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from architectures import ARCHITECTURES
from groups import FIVE, SHAPE
from tinymodels import built

from macspec.errors import BadOptionError
from macspec.hosts.files import WHOLE, difference, digests
from macspec.hosts.sharding import shares


def of(name: str, **changes: Any) -> Any:
    return built({**ARCHITECTURES[name], **SHAPE, "vocab_size": 96, **changes})


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_tensor_shares(name: str) -> None:
    """Every rank has a third of the layers, and all of the embedding."""
    model = of(name)
    (alone,) = shares(name, lambda: copy.deepcopy(model), 1, 512).estimates
    found = shares(name, lambda: copy.deepcopy(model), 3, 512)
    assert found.how == "tensor"
    assert len(found.estimates) == 3
    embedding = 96 * 96 * 4
    for part in found.estimates:
        assert 2.8 < (alone.weights - embedding) / (part.weights - embedding) <= 3
        assert part.cache(512) * 3 == alone.cache(512)


def test_an_output_head_stays_whole() -> None:
    model = of("qwen3_5", tie_word_embeddings=False)
    (alone,) = shares("it", lambda: copy.deepcopy(model), 1, 512).estimates
    first, _ = shares("it", lambda: copy.deepcopy(model), 2, 512).estimates
    ends = 2 * 96 * 96 * 4
    assert 1.8 < (alone.weights - ends) / (first.weights - ends) <= 2


def test_a_pipeline_of_whole_layers() -> None:
    model = of("qwen2", **FIVE)
    found = shares("it", lambda: copy.deepcopy(model), 2, 512)
    assert found.how == "pipeline"
    first, second = found.estimates
    assert first.cache(512) == 2 * second.cache(512)


@pytest.mark.parametrize(
    ("name", "changes", "count", "why"),
    [
        ("llama", {"num_attention_heads": 4, "head_dim": 96}, 3, "cannot be divided by 3"),
        ("llama", {"num_key_value_heads": 1}, 2, "cannot be divided by 2"),
        ("gemma3_text", {}, 2, "no sharding for this kind"),
        ("qwen2", {**FIVE, "num_hidden_layers": 2}, 3, "fewer than 3 layers"),
        ("qwen3_next", {"num_hidden_layers": 3}, 3, "its layers differ too much"),
    ],
)
def test_refusals(name: str, changes: dict[str, Any], count: int, why: str) -> None:
    model = of(name, **changes)
    with pytest.raises(BadOptionError, match=f"over {count} machines: .*{why}"):
        shares(name, lambda: copy.deepcopy(model), count, 512)


def test_files_that_differ(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    weights = bytes(range(256)) * (WHOLE // 128)
    for folder in (here, there):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(weights)
    (there / "README.md").write_text("of no importance")
    assert difference(digests(here), digests(there)) is None
    (there / "model.safetensors").write_bytes(weights[:-1] + b"!")
    assert difference(digests(here), digests(there)) == "its model.safetensors is another"
    (there / "model.safetensors").unlink()
    assert difference(digests(here), digests(there)) == "it lacks model.safetensors"
    assert difference(digests(there), digests(here)) == "it has model.safetensors, too"
