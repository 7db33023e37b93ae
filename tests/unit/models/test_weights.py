"""Safetensors files that are missing, truncated or damaged are found before MLX reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from macspec.errors import ModelBrokenError
from macspec.models.files import check_weights, read_header

TENSOR = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write(file: Path, header: Any, payload: bytes = bytes(24)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    return file


def test_what_ships_is_whole(copy):
    for role in ("target", "draft"):
        check_weights(role, copy(role, role))


def test_header_is_read_without_its_metadata(tmp_path):
    file = write(tmp_path / "model.safetensors", {"__metadata__": {"format": "mlx"}, "a": TENSOR})
    assert read_header(file) == {"a": TENSOR}


@pytest.mark.parametrize("kept", [0, 5, 8, 20, 3000, -1])
def test_a_cut_off_file_says_so(copy, kept):
    folder = copy()
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelBrokenError, match=r"my-model: model\.\w+ is truncated.* bytes"):
        check_weights("my-model", folder)


@pytest.mark.parametrize(
    ("header", "payload", "reason"),
    [
        ({"a": TENSOR}, bytes(25), "damaged: .* bytes, but its header accounts for"),
        ({"a": {**TENSOR, "shape": [2, 4]}}, bytes(24), "size of a does not match"),
        ({"a": {**TENSOR, "data_offsets": [24, 0]}}, bytes(24), "size of a does not match"),
        ({"a": {**TENSOR, "data_offsets": [0]}}, bytes(24), "damaged header"),
        ({"a": {"dtype": "F32"}}, bytes(24), "damaged header"),
        ({"a": 3}, bytes(24), "damaged header"),
        ([1, 2], bytes(24), "damaged header"),
        (b"not json", bytes(24), "damaged header"),
        (b"\xff\xfe{}", bytes(24), "damaged header"),
        (b"[" * 100_000, bytes(24), "damaged header"),
    ],
)
def test_a_header_that_lies_says_so(tmp_path, header, payload, reason):
    write(tmp_path / "model.safetensors", header, payload)
    with pytest.raises(ModelBrokenError, match=reason):
        check_weights("my-model", tmp_path)


def test_a_header_length_beyond_the_file_is_not_believed(tmp_path):
    (tmp_path / "model.safetensors").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelBrokenError, match="truncated"):
        check_weights("my-model", tmp_path)


def test_a_git_lfs_pointer_is_named(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(ModelBrokenError, match=r"Git LFS pointer.*git lfs pull"):
        check_weights("my-model", tmp_path)


def test_a_type_of_the_future_is_not_judged(tmp_path):
    write(tmp_path / "model.safetensors", {"a": {**TENSOR, "dtype": "F6_E2M3"}})
    check_weights("my-model", tmp_path)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("pytorch_model.bin", "only PyTorch weights"),
        ("model-Q4_K_M.gguf", "GGUF"),
        ("consolidated.safetensors", r"no file is named model\*\.safetensors"),
        ("README.md", r"no weights \(model\*\.safetensors\)"),
    ],
)
def test_a_folder_without_usable_weights_says_what_it_has(tmp_path, file, reason):
    (tmp_path / file).touch()
    with pytest.raises(ModelBrokenError, match=f"my-model.*{reason}.*mlx-community"):
        check_weights("my-model", tmp_path)


def index(folder: Path, shards: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def test_a_shard_that_the_index_names_and_is_gone_is_named(tmp_path):
    write(tmp_path / "model-00001-of-00002.safetensors", {"a": TENSOR})
    index(
        tmp_path,
        {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    )
    with pytest.raises(ModelBrokenError, match=r"model-00002-of-00002\.safetensors of .*missing"):
        check_weights("my-model", tmp_path)
    write(tmp_path / "model-00002-of-00002.safetensors", {"b": TENSOR})
    check_weights("my-model", tmp_path)


def test_an_old_index_beside_merged_weights_does_no_harm(tmp_path):
    write(tmp_path / "model.safetensors", {"a": TENSOR})
    index(tmp_path, {"a": "model-00001-of-00002.safetensors"})
    check_weights("my-model", tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}'])
def test_a_broken_index_is_named(tmp_path, content):
    write(tmp_path / "model.safetensors", {"a": TENSOR})
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelBrokenError, match=r"index\.json cannot be read"):
        check_weights("my-model", tmp_path)


def test_a_folder_that_mlx_lm_cannot_search_is_named(copy):
    with pytest.raises(ModelBrokenError, match=r"rename it"):
        check_weights("my-model", copy("draft", "models [mlx]"))
