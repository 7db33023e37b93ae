"""Where a session keeps what it learned about this machine and this pair."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from .config import cache_folder, data_folder
from .control import Ledger
from .drafters import Corpus
from .drafters.corpus import vocabulary_key
from .kernels import Kernels
from .models import Model, Pair


def ledger(
    pair: Pair,
    kv_bits: int | None = None,
    folder: Path | None = None,
    kernels: str = Kernels.key,
) -> Ledger:
    """The ledger of a pair on this machine.

    Args:
        kernels: which ones its passes are computed with, as ``Kernels.key``.
        folder: where it lies; None: in the user's cache folder.
    """
    models = [described(model) for model in (pair.target, pair.draft) if model is not None]
    text = json.dumps([models, kv_bits], sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    made_for = {
        "chip": str(mx.device_info().get("device_name") or platform.machine()),
        "mlx": version("mlx"),
        "mlx-lm": version("mlx-lm"),
        "macspec": version("macspec"),
        "kernels": kernels,
    }
    folder = folder or cache_folder() / "costs"
    return Ledger(folder / f"{name}.json", made_for)


def corpus(pair: Pair, folder: Path | None = None) -> Corpus:
    """The user's past replies in the pair's vocabulary.

    Args:
        folder: where they lie; None: in the user's data folder.
    """
    table = {index: text for text, index in pair.target.tokenizer.get_vocab().items()}
    return Corpus.open(folder or data_folder() / "corpus", vocabulary_key(table, pair.vocabulary))


def described(model: Model) -> list[object]:
    """What tells one model from another without reading its weights."""
    return [model.config, model.parameters, model.weight_bytes]
