"""Model folders to load, made from the pair that ships."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from architectures import ARCHITECTURES
from mlx_lm.models import qwen3_5

POCKET = Path(str(files("macspec.assets"))) / "pocket"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "models"


@contextmanager
def edited(file: Path) -> Iterator[Any]:
    """A JSON file's content, written back when the block ends."""
    content = json.loads(file.read_text())
    yield content
    file.write_text(json.dumps(content))


def hybrid(folder: Path) -> str:
    """A model with a running state and the built-in pair's tokenizer, made in a folder."""
    shutil.copytree(POCKET / "draft", folder)
    with edited(folder / "config.json") as config:
        vocabulary = config["vocab_size"]
        config.clear()
        config.update({**ARCHITECTURES["qwen3_5"], "vocab_size": vocabulary})
    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(config))
    model.save_weights(str(folder / "model.safetensors"))
    return str(folder)


def shared_model(name: str) -> str:
    """The path of a model under ``../shared``; skips where it is absent."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"../shared/data/models/{name} is not here")
    return str(folder)
