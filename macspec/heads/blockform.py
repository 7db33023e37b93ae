"""What the files of a block drafter say, whoever packaged them. Needs no MLX.

Packagings differ in where they name a thing, and in which names are left over from the target's
own configuration and mean nothing. What only the tensors tell is asked of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = Mapping[str, Any]

CONTEXT = 4096
"""Newest rows of context that a head reads which was trained without a window: on more than its
training texts had, it drafts worse."""

CANDIDATES = 16
"""Tokens that a selector chooses among, unless the files say otherwise."""

WIDEST = 64
"""Most rows of a block."""

MINUS_ONE = "qwen3_5"
"""The family whose files store the weights of norms minus one."""


@dataclass(frozen=True)
class Form:
    """How a block drafter is to be read."""

    packaging: str
    taps: tuple[int, ...]
    """The target's layers whose output it reads."""
    block: int
    """Rows of a block, the anchor's included."""
    mask: int
    """The id that stands for what is to be guessed."""
    first: int
    """The first row of a block that guesses: 0 the anchor's own, or 1."""
    heads: int
    eps: float = 1e-6
    theta: float = 1e6
    rotated: float = 1.0
    """Share of a head's numbers that are turned."""
    scaling: Settings | None = None
    """Of rotary positions, named as transformers names it."""
    traditional: bool = False
    """Whether neighbours are turned together, instead of the halves of a head."""
    windows: tuple[int | None, ...] = ()
    """For each layer the positions that a row attends to, itself included; None: all."""
    causal: tuple[bool, ...] = ()
    """For each layer whether a row attends to the later ones of its block."""
    softcap: float | None = None
    multiplier: float = 1.0
    """What the target's output head is multiplied with before the cap."""
    scale: float = 1.0
    """What embeddings are multiplied with."""
    candidates: int = CANDIDATES
    rank: int = 0
    """Of the table of pairs."""
    offset_norms: bool = False
    """Whether files of this kind store the weights of norms minus one."""
    notes: tuple[str, ...] = field(default=())
    """What was put right, each half a sentence that continues "the head"."""


def packaging_of(config: Settings, names: Collection[str]) -> str:
    """Who packaged a block drafter."""
    own = config.get("dflash_config")
    own = own if isinstance(own, Mapping) else {}
    made = str(config.get("architectures"))
    if "speculators_model_type" in config or "speculators_config" in config:
        return "speculators"
    if own.get("projector_type") == "dspark":
        return "SpecForge"
    if "dflash_query_causal" in config or any("attention_sink" in it for it in names):
        return "NVIDIA"
    if "Lfm2" in made:
        return "LiquidAI"
    if "Qwen35DSpark" in made or config.get("enable_qwen35_gated_q_proj"):
        return "qwen3_5-native"
    if any(it.startswith("log_snr_embed.") for it in names):
        return "Bonsai"
    return "DeepSpec" if any(it.startswith("markov_head.") for it in names) else "z-lab"


def form_of(config: Settings, names: Collection[str], layers: int, vocabulary: int) -> Form:
    """The form of a head for a target.

    Args:
        layers: of the target; ``vocabulary``: its size.

    Raises:
        ValueError: it cannot be for this target, or lacks something; continues "the head".
    """
    try:
        return _form(config, names, layers, vocabulary)
    except (TypeError, AttributeError, LookupError, OverflowError) as error:
        raise ValueError("has settings in its config.json that cannot be read") from error


def _form(config: Settings, names: Collection[str], layers: int, vocabulary: int) -> Form:
    packaging = packaging_of(config, names)
    read = _Reader(config)
    taps, notes = _taps(read, layers)
    block, mask = int(read.needed("block_size")), int(read.needed("mask_token_id"))
    if not 1 < block <= WIDEST:
        raise ValueError(f"has blocks of {block} tokens; from 2 to {WIDEST} are possible")
    if not 0 <= mask < vocabulary:
        raise ValueError(
            f"marks what it guesses by token {mask}, and the target's vocabulary has {vocabulary}: "
            "it is for another family"
        )
    gemma = "layers.0.pre_feedforward_layernorm.weight" in names
    native = packaging == "qwen3_5-native" or config.get("model_type") == MINUS_ONE
    count = 1 + max(int(it.split(".")[1]) for it in names if it.startswith("layers."))
    windows, causal = _windows(read, packaging, count)
    return Form(
        packaging=packaging,
        taps=taps,
        block=block,
        mask=mask,
        first=_first(read, packaging, names),
        heads=int(read.needed("num_attention_heads")),
        eps=float(read("rms_norm_eps", 1e-6)),
        windows=windows,
        causal=causal,
        softcap=read("final_logit_softcapping", 30.0 if gemma else None),
        multiplier=float(read("output_multiplier", 1.0)),
        scale=float(read("input_embedding_scale", 1.0)),
        candidates=int(read("selector_top_k", CANDIDATES)),
        rank=int(read("markov_rank", 256)),
        offset_norms=native,
        traditional=not read("rope_is_neox_style", True),
        notes=tuple(notes),
        **_rope(read, packaging, native, gemma),
    )


class _Reader:
    """Settings by name: those of the drafter proper first, then those of its layers."""

    def __init__(self, config: Settings) -> None:
        inner = (config.get("dflash_config"), config, config.get("transformer_layer_config"))
        self.places: list[Settings] = [it for it in inner if isinstance(it, Mapping)]

    def __call__(self, name: str, default: Any = None) -> Any:
        found = (it[name] for it in self.places if it.get(name) is not None)
        return next(found, default)

    def needed(self, name: str) -> Any:
        value = self(name)
        if value is None:
            raise ValueError(f"has no {name} in its config.json")
        return value


def _taps(read: _Reader, layers: int) -> tuple[tuple[int, ...], list[str]]:
    named = read("target_layer_ids") or read("aux_hidden_state_layer_ids")
    if not named:
        raise ValueError("has no target_layer_ids in its config.json")
    taps = tuple(int(it) for it in named)
    if max(taps) == layers and min(taps) > 0:
        # Counted from the embedding, as lists of hidden states are.
        return tuple(it - 1 for it in taps), ["counts the target's layers from 1"]
    if not all(0 <= it < layers for it in taps):
        raise ValueError(f"reads layers {list(taps)} of a target that has {layers}")
    return taps, []


def _first(read: _Reader, packaging: str, names: Collection[str]) -> int:
    anchor = read("sample_from_anchor")
    if packaging == "speculators":
        methods = (read("speculators_config") or {}).get("proposal_methods") or [{}]
        tokens, block = methods[0].get("speculative_tokens"), read.needed("block_size")
        if tokens and 0 <= block - tokens <= 1:
            return int(block - tokens)
        # Files without the field are older than it, and reserved the anchor's row.
        return 0 if anchor is True else 1
    if packaging == "SpecForge":
        return 0  # the sampling loop shipped beside it says otherwise, and halves its acceptance
    if anchor is not None:
        return 0 if anchor else 1
    return 0 if any(it.startswith("markov_head.") for it in names) else 1


def _windows(
    read: _Reader, packaging: str, count: int
) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    window = read("sliding_window")
    kinds = read("layer_types") or ()
    sliding = [at < len(kinds) and kinds[at] == "sliding_attention" for at in range(count)]
    everywhere = bool(read("dflash_query_causal") or read("causal"))
    if packaging == "NVIDIA":
        window = window or (read("swa_window_size") if read("use_swa") else None)
        return (window,) * count, (everywhere,) * count
    if packaging == "z-lab":
        causal = not read("sliding_window_non_causal", False)
        return (
            tuple(window if it else None for it in sliding),
            tuple(everywhere or (it and causal) for it in sliding),
        )
    if packaging == "speculators" and any(sliding) and window and read("use_sliding_window", True):
        return (window,) * count, (not read("sliding_window_non_causal", False),) * count
    # Elsewhere a window is the target's.
    return (None,) * count, (everywhere,) * count


def _rope(read: _Reader, packaging: str, native: bool, gemma: bool) -> dict[str, Any]:
    named = read("rope_parameters") or {}
    if gemma:
        named = named.get("full_attention") or {}
        share = float(named.get("partial_rotary_factor", 0.25))
        scaling = {"rope_type": "proportional", "partial_rotary_factor": share}
        return {"theta": float(named.get("rope_theta", 1e6)), "scaling": scaling}
    theta = float(named.get("rope_theta") or read("rope_theta", 1e6))
    # In other files the share turned, and most scalings, are left over from the target's.
    share = float(named.get("partial_rotary_factor", 1.0)) if native else 1.0
    scaled = named if packaging == "SpecForge" else read("rope_scaling")
    own = packaging in ("SpecForge", "z-lab") and scaled and scaled.get("factor")
    return {"theta": theta, "rotated": share, "scaling": dict(scaled) if own else None}
