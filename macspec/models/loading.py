"""From a folder to a model: configuration, tokenizer, and weights that are read last."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.tokenizer_utils import TokenizerWrapper
from transformers.utils import logging as transformers_logging

from ..assets import pocket
from ..errors import ModelBrokenError, OutOfMemoryError, brief, is_out_of_memory, quoted
from .files import broken, check_weights, without_weights
from .folder import check_files, check_sizes
from .memory import MemoryEstimate, MemoryPlan, estimate_memory, gigabytes
from .trial import TRIAL

if TYPE_CHECKING:
    from .cached import CachedModel


@dataclass(frozen=True, eq=False)
class Model:
    """A model of mlx-lm with its tokenizer and what is known about both."""

    name: str
    """What the user typed, or ``built-in target`` and ``built-in draft``."""
    path: Path
    module: Module = field(repr=False)
    config: dict[str, Any] = field(repr=False)
    tokenizer: TokenizerWrapper = field(repr=False)
    parameters: int
    weight_bytes: int
    context: int
    """Positions that the model supports."""
    width: int
    """Logits of one row; may be more than the tokenizer has ids."""
    estimate: MemoryEstimate = field(repr=False)
    """What it costs in memory."""
    spread: Spread | None = field(default=None, repr=False)
    """Where the rest of it is, if this is one machine's part; None: this is all of it."""

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return len(self.module.layers)


class Spread(Protocol):
    """How a target is spread over several machines; of ``macspec.hosts``."""

    @property
    def whole(self) -> Model:
        """The target as one machine would hold it, not read: a pattern for heads."""
        ...

    @property
    def key(self) -> str:
        """What measured costs depend on."""
        ...

    def model(self, module: Module, vocabulary: int, **settings: Any) -> CachedModel:
        """The target with empty caches, on all machines; arguments as of ``CachedModel``."""
        ...

    def fit(self, plan: MemoryPlan) -> MemoryPlan:
        """This machine's plan, with prefill passes that fit on all; OutOfMemoryError if even the
        least do not."""
        ...

    def begin_reading(self, plan: MemoryPlan) -> Callable[[], object]:
        """Have the others read their weights; returns what waits for them."""
        ...


class Machines(Protocol):
    """Several machines that can hold one target."""

    def open(
        self,
        name: str,
        folder: Path,
        source: str | None,
        trust: bool,
        context: int | None,
        kv_bits: int | None,
    ) -> Model:
        """Open a target on all of them, as ``open_model`` does here.

        Args:
            source: what the user typed; None: the built-in target.
            context: positions asked for; None: as many as fit.

        Raises:
            HostError: one of them has not the same model.
            BadOptionError: mlx-lm cannot spread it over so many.
            OutOfMemoryError: a part does not fit into the memory of its machine.
        """
        ...


# mlx-lm has no annotations.
mlx_lm: Any = utils

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "tiktoken.model", "vocab.*")

CONTEXT_KEYS = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_positions",
    "n_ctx",
)
"""What architectures call the positions that they support, the usual name first."""

UNKNOWN_CONTEXT = 4096
"""Positions of a model that does not say how many it supports."""

ENDLESS = 10**9
"""A tokenizer with a limit of this or more has none."""

STRIDE = 256 * 2**20
"""Bytes of weights that are read between two reports of progress."""


def open_model(name: str, folder: Path, *, trust_remote_code: bool = False) -> Model:
    """Load all of a model but its weights, which ``read_weights`` reads.

    A folder that is not known yet is tried first, in a process with limits.

    Raises:
        ModelBrokenError: a file is missing, damaged, or of a kind that cannot be loaded, or cannot
            be loaded within those limits.
    """
    if folder not in pocket():
        check_files(name, folder)
        TRIAL.check(name, folder, trust_remote_code=trust_remote_code)
    return opened(name, folder, trust_remote_code)


def opened(
    name: str,
    folder: Path,
    trust_remote_code: bool = False,
    stage: Callable[[str], None] = lambda what: None,
) -> Model:
    """As ``open_model``, untried; ``stage`` gets what is read next."""
    with _quiet():
        stage("configuration")
        config = checked_config(name, folder, trust_remote_code)
        kind = config.get("model_type")
        misfit = (
            f"{name}: its weights and config.json do not form a {quoted(kind)} model that mlx-lm "
            "can run"
        )
        with broken(misfit, "choose an MLX version of it"):
            module, config = mlx_lm.load_model(
                folder,
                lazy=True,
                get_model_classes=lambda config: _architecture(name, config),
                trust_remote_code=trust_remote_code,
            )
            stage("tokenizer")
            tokenizer = load_tokenizer(name, folder, config, trust_remote_code)
            stage("configuration")
            context = context_length(config, tokenizer)
            estimate = estimate_memory(module, context)
            parameters = int(mlx_lm.get_total_parameters(module))
    # Else the tokenizer warns about long texts; the session knows the context.
    tokenizer.model_max_length = ENDLESS
    return Model(
        name=name,
        path=folder,
        module=module,
        config=config,
        tokenizer=tokenizer,
        parameters=parameters,
        weight_bytes=estimate.weights,
        context=context,
        width=estimate.width,
        estimate=estimate,
    )


class Weighty(Protocol):
    """What has weights to read."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> Module: ...
    @property
    def weight_bytes(self) -> int: ...


def read_weights(model: Weighty, progress: Callable[[int], None] = lambda done: None) -> None:
    """Read a model's weights into memory.

    ``progress`` gets the bytes read so far, now and then; what it raises ends the reading.

    Raises:
        OutOfMemoryError: the device refused the memory.
        ModelBrokenError: the files changed or cannot be read.
    """
    module: Any = model.module
    arrays: Any = dict(tree_flatten(module.parameters())).values()
    done = 0
    for stride in _strides(arrays):
        with broken(f"{model.name}: its weights cannot be read"):
            try:
                mx.eval(stride)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                raise OutOfMemoryError(
                    f"not enough memory for the {gigabytes(model.weight_bytes)} of weights of "
                    f"{model.name} ({brief(error)}): close other programs, or choose a smaller or "
                    "more quantized model"
                ) from error
        done += sum(array.nbytes for array in stride)
        progress(done)
    # What it keeps beside them, as frequencies of a rotary embedding: a fault of the GPU in the
    # pass that computes it would spoil all passes after it.
    mx.eval(module)


def _strides(arrays: Iterable[mx.array]) -> Iterator[list[mx.array]]:
    """Arrays in groups of at least ``STRIDE`` bytes, but for the last one."""
    stride: list[mx.array] = []
    for array in arrays:
        stride.append(array)
        if sum(array.nbytes for array in stride) >= STRIDE:
            yield stride
            stride = []
    if stride:
        yield stride


def checked_config(name: str, folder: Path, trust_remote_code: bool) -> dict[str, Any]:
    """The configuration of a folder whose weights are complete and whose code is trusted."""
    config = read_config(name, folder)
    if config.get("model_file") is not None and not trust_remote_code:
        raise ModelBrokenError(
            f"{name} runs its own code ({quoted(config['model_file'])}): read it, and if you "
            "trust it add --trust-remote-code"
        )
    check_weights(name, folder)
    return config


def read_config(name: str, folder: Path) -> dict[str, Any]:
    """A folder's ``config.json``, with the end tokens of ``generation_config.json``."""
    check_files(name, folder)
    path = folder / "config.json"
    if not path.is_file():
        with broken(f"{name}: {folder} cannot be read", "check its permissions"):
            files = [file.name for file in folder.iterdir()]
        if any(file.endswith((".gguf", ".bin", ".pt", ".pth", ".ckpt")) for file in files):
            raise ModelBrokenError(without_weights(name, files))
        raise ModelBrokenError(f"{name}: {folder} has no config.json: give the folder of a model")
    with broken(f"{name}: config.json cannot be read"):
        config = mlx_lm.load_config(folder)
        if not isinstance(config, dict):
            raise ValueError("it is not a JSON object")
        check_sizes(name, config)
    return config


def load_tokenizer(
    name: str, folder: Path, config: dict[str, Any], trust_remote_code: bool = False
) -> TokenizerWrapper:
    """A folder's tokenizer; the end tokens of ``config`` are among its own."""
    brings_code = trust_remote_code and any(folder.glob("*.py"))
    if not brings_code and not any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        raise ModelBrokenError(
            f"{name} has no tokenizer (tokenizer.json or tokenizer.model): copy it from the "
            "original model"
        )
    settings = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    ends = config.get("eos_token_id")
    with broken(f"the tokenizer of {name} cannot be loaded"):
        try:
            tokenizer: TokenizerWrapper = mlx_lm.load_tokenizer(
                folder, settings, eos_token_ids=ends
            )
        except ValueError as error:
            if "trust_remote_code" not in str(error):
                raise
            raise ModelBrokenError(
                f"the tokenizer of {name} runs its own code: read it, and if you trust it add "
                "--trust-remote-code"
            ) from error
    return tokenizer


def context_length(config: dict[str, Any], tokenizer: TokenizerWrapper) -> int:
    """Positions that a model supports: by its configuration, else by its tokenizer."""
    nested = config.get("text_config")
    for settings in (config, nested if isinstance(nested, dict) else {}):
        for key in CONTEXT_KEYS:
            value = settings.get(key)
            if isinstance(value, int | float) and 0 < value < ENDLESS:
                return int(value)
    limit = tokenizer.model_max_length
    return int(limit) if 0 < limit < ENDLESS else UNKNOWN_CONTEXT


def _architecture(name: str, config: dict[str, Any]) -> Any:
    """mlx-lm's model and argument classes for a configuration."""
    try:
        return mlx_lm._get_classes(config)
    except Exception as error:
        kind = quoted(repr(config.get("model_type")))
        raise ModelBrokenError(
            f"{name}: mlx-lm does not support the architecture {kind}: "
            "update mlx-lm, or choose another model"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep libraries off standard output, and drop their advice for trainers."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
