"""A model folder becomes a model, or one line that says what is wrong with it."""

from __future__ import annotations

import gc
import io
import json
import logging
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from modelfolders import edited
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from macspec.errors import ModelBrokenError, OutOfMemoryError
from macspec.models import loading
from macspec.models.loading import UNKNOWN_CONTEXT, context_length, open_model, read_weights


def broken(folder: Path, **settings: bool) -> str:
    with pytest.raises(ModelBrokenError) as caught:
        open_model("my-model", folder, **settings)
    text = str(caught.value)
    assert "\n" not in text
    assert "my-model" in text
    return text


def test_what_is_known_of_a_model(copy):
    folder = copy()
    model = open_model("my-model", folder)
    assert (model.name, model.path, model.config["model_type"]) == ("my-model", folder, "llama")
    assert (model.context, model.width, model.parameters) == (2048, 4096, 963_040)
    assert model.weight_bytes == model.estimate.weights == 2 * model.parameters
    read_weights(model)
    logits = model.module(mx.array([[1, 2, 3]]))
    assert logits.shape == (1, 3, model.width)


def test_opening_reads_no_weights(copy):
    gc.collect()
    before = mx.get_active_memory()
    model = open_model("my-model", copy("target"))
    assert mx.get_active_memory() - before < model.weight_bytes // 100
    read_weights(model)
    assert mx.get_active_memory() - before >= model.weight_bytes


def test_reading_leaves_nothing_for_the_first_pass_to_compute(copy):
    """Which a fault of the GPU might spoil for good."""
    folder, llama3 = copy(), {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    with edited(folder / "config.json") as config:
        config["rope_scaling"] = {"rope_type": "llama3", "factor": 2.0, **llama3}
    model = open_model("my-model", folder)
    arrays = [it for _, it in tree_flatten(model.module) if isinstance(it, mx.array)]
    assert len(arrays) > len(tree_flatten(model.module.parameters()))
    read_weights(model)
    graph = io.StringIO()
    mx.export_to_dot(graph, *arrays)
    assert "label" not in graph.getvalue()  # of an operation


def test_parameters_of_a_quantized_model_are_not_its_packed_words(copy):
    folder = copy()
    model = open_model("my-model", folder)
    nn.quantize(model.module, group_size=32, bits=4)
    weights = dict(tree_flatten(model.module.parameters()))
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    with edited(folder / "config.json") as config:
        config["quantization"] = {"group_size": 32, "bits": 4}
    quantized = open_model("my-model", folder)
    assert quantized.parameters == model.parameters
    assert quantized.weight_bytes < model.weight_bytes / 2
    assert quantized.width == model.width


def test_an_empty_folder(tmp_path):
    assert "has no config.json" in broken(tmp_path)


def test_a_folder_of_another_kind(tmp_path):
    (tmp_path / "model-Q4.gguf").touch()
    assert "GGUF" in broken(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "\xff", "[" * 100_000])
def test_a_broken_config(copy, content):
    folder = copy()
    (folder / "config.json").write_text(content, encoding="latin-1")
    assert "config.json cannot be read" in broken(folder)


def test_a_broken_generation_config(copy):
    folder = copy()
    (folder / "generation_config.json").write_text("[1]")
    assert "cannot be read" in broken(folder)


def test_an_unreadable_file_is_named(copy, monkeypatch):
    folder = copy()

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "model.safetensors")

    monkeypatch.setattr("macspec.models.files.read_header", denied)
    assert "model.safetensors cannot be read" in broken(folder)


@pytest.mark.parametrize("architecture", ["no_such", None, 3, "cache", "../llama", ""])
def test_an_unknown_architecture(copy, architecture):
    folder = copy()
    with edited(folder / "config.json") as config:
        config["model_type"] = architecture
    assert f"mlx-lm does not support the architecture {architecture!r}" in broken(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", 256),
        ("num_hidden_layers", 3),
        ("num_hidden_layers", 2),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 3),
        ("vocab_size", 2000),
        ("hidden_size", "wide"),
        ("rope_scaling", {"type": "no such"}),
        ("quantization", {"group_size": 64}),
    ],
)
def test_a_config_of_another_model(copy, key, value):
    folder = copy()
    with edited(folder / "config.json") as config:
        config[key] = value
    assert "do not form a llama model that mlx-lm can run" in broken(folder)


def test_weights_are_checked_before_mlx_reads_them(copy, monkeypatch):
    folder = copy()
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    monkeypatch.setattr(mx, "load", lambda *_: pytest.fail("MLX was asked to read it"))
    assert "model.safetensors is truncated" in broken(folder)


def test_a_model_with_code_of_its_own_needs_consent(copy):
    folder = copy()
    with edited(folder / "config.json") as config:
        config["model_file"] = "my_model.py"
    (folder / "my_model.py").write_text(
        "from mlx_lm.models.llama import Model, ModelArgs\nprint('running')\n"
    )
    assert "runs its own code (my_model.py)" in broken(folder)
    assert "--trust-remote-code" in broken(folder)
    model = open_model("my-model", folder, trust_remote_code=True)
    assert type(model.module).__name__ == "Model"


def test_a_tokenizer_with_code_of_its_own_needs_consent(copy):
    folder = copy()
    with edited(folder / "tokenizer_config.json") as config:
        config["tokenizer_class"] = "MyTokenizer"
        config["auto_map"] = {"AutoTokenizer": ["my_tokenizer.MyTokenizer", None]}
    (folder / "my_tokenizer.py").write_text(
        "from transformers import PreTrainedTokenizerFast\n"
        "class MyTokenizer(PreTrainedTokenizerFast):\n    pass\n"
        "raise SystemError('the code ran')\n"
    )
    assert "runs its own code: read it" in broken(folder)
    assert "the code ran" in broken(folder, trust_remote_code=True)


def test_no_tokenizer(copy):
    folder = copy()
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer (tokenizer.json or tokenizer.model)" in broken(folder)


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0", "model": {"type": "BPE"}}'])
def test_a_broken_tokenizer(copy, content):
    folder = copy()
    (folder / "tokenizer.json").write_text(content)
    assert "the tokenizer of my-model cannot be loaded" in broken(folder)


def test_loading_is_silent(copy, capfd):
    folder = copy()
    (folder / "my_model.py").write_text(
        "from mlx_lm.models.llama import Model, ModelArgs\nprint('loud')\n"
    )
    with edited(folder / "config.json") as config:
        config["model_file"] = "my_model.py"
    open_model("my-model", folder, trust_remote_code=True)
    assert capfd.readouterr() == ("", "loud\n")


def test_the_tokenizer_does_not_advise_on_long_texts(copy):
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    transformers_logging.add_handler(handler)
    try:
        folder = copy()
        AutoTokenizer.from_pretrained(folder).encode("word " * 5000)
        assert len(records) == 1
        model = open_model("my-model", folder)
        model.tokenizer.encode("word " * 5000)
        assert len(records) == 1
    finally:
        transformers_logging.remove_handler(handler)


def test_end_tokens_of_the_generation_config_count(copy):
    folder = copy()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9]}))
    model = open_model("my-model", folder)
    assert model.tokenizer.eos_token_ids == {2, 5, 9}


@pytest.mark.parametrize(
    ("config", "limit", "context"),
    [
        ({"max_position_embeddings": 512}, 100, 512),
        ({"text_config": {"max_position_embeddings": 8192}}, 100, 8192),
        ({"max_position_embeddings": None, "text_config": {"n_ctx": 77}}, 100, 77),
        ({"n_positions": 1024, "text_config": None}, 100, 1024),
        ({"max_sequence_length": 2048.0}, 100, 2048),
        ({"max_position_embeddings": "many"}, 100, 100),
        ({"max_position_embeddings": 0}, 10**30, UNKNOWN_CONTEXT),
        ({}, 1000, 1000),
    ],
)
def test_context_length(config, limit, context):
    class Tokenizer:
        model_max_length = limit

    assert context_length(config, Tokenizer()) == context


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (RuntimeError("[malloc] Unable to allocate 16 bytes."), OutOfMemoryError),
        (MemoryError(), OutOfMemoryError),
        (RuntimeError("[METAL] Command buffer: Insufficient Memory"), OutOfMemoryError),
        (RuntimeError("[read] Unable to read from file."), ModelBrokenError),
    ],
)
def test_failures_while_the_weights_are_read(copy, monkeypatch, failure, error):
    model = open_model("my-model", copy())

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(loading.mx, "eval", fail)
    with pytest.raises(error, match="my-model"):
        read_weights(model)
