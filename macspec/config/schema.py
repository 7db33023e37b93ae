"""All settings: one tree of dataclasses, a sentence for each field.

Limits that other modules hold too are repeated here, since those modules import MLX and the app
must not; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..choices import MAX_DEPTH, METHODS
from . import kinds
from .kinds import Kind

BUILT_IN = "built-in"
"""As a target: the pair that comes with macspec."""

NONE = "none"
"""As a draft: no draft model."""


def setting(default: Any, kind: Kind, about: str, example: Any = None) -> Any:
    """A field of a section; ``example`` stands in the file's template where there is no default."""
    extra = {"kind": kind, "about": about, "example": example}
    return field(default=default, metadata=extra)


@dataclass(frozen=True, slots=True)
class Models:
    """Which pair to load, and how."""

    target: str | None = setting(
        None,
        kinds.model(),
        "Whose text you want: a folder, a Hugging Face id, or built-in.",
        example="mlx-community/Qwen3-8B-4bit",
    )
    draft: str | None = setting(
        None,
        kinds.model(),
        "The target's draft model: a folder, a Hugging Face id, or none.",
        example="mlx-community/Qwen3-0.6B-4bit",
    )
    context: int | None = setting(
        None,
        kinds.whole(1),
        "Positions to plan for; unset: what the target allows and memory holds.",
        example=8192,
    )
    kv_bits: int | None = setting(
        None,
        kinds.choice_of_numbers(2, 4, 8),
        "Bits of the target's quantized cache; unset: the model's own precision.",
        example=8,
    )


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted and accepted."""

    method: str = setting(
        "auto", kinds.one_of(*METHODS), "Who drafts; auto chooses before every round."
    )
    depth: int | str = setting(
        "auto", kinds.whole(0, MAX_DEPTH, "auto"), "Tokens drafted in a round."
    )
    accept: str = setting(
        "block",
        kinds.one_of("block", "keyed", "match"),
        "The acceptance rule; keyed repeats its text for a seed.",
    )
    learn: bool = setting(
        True,
        kinds.flag(),
        "Use and keep what earlier replies taught; none of it leaves this machine.",
    )
    kernels: str = setting(
        "auto",
        kinds.one_of("auto", "off", "strict"),
        "macspec's own Metal kernels: auto where they prove themselves, off, or strict.",
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = setting(
        0.7, kinds.number(1e-6, 100, zero=True), "0 takes the likeliest token, more is bolder."
    )
    top_p: float = setting(
        1.0, kinds.number(0, 1, above=True), "Keep the likeliest tokens up to this share."
    )
    top_k: int = setting(0, kinds.whole(0), "Keep this many of the likeliest tokens; 0 keeps all.")
    min_p: float = setting(
        0.0, kinds.number(0, 1), "Drop tokens below this share of the likeliest."
    )
    repetition_penalty: float = setting(
        1.0, kinds.number(0.01, 100), "Above 1, recent tokens become less likely."
    )
    presence_penalty: float = setting(
        0.0, kinds.number(-1e9, 1e9), "Taken off the score of each recent token."
    )
    frequency_penalty: float = setting(
        0.0, kinds.number(-1e9, 1e9), "Taken off that score for every recent use."
    )
    seed: int | None = setting(
        None,
        kinds.whole(0, 2**64 - 1),
        "Start of the random numbers; unset: a new one for every reply.",
        example=1,
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply starts from and where it ends."""

    system: str = setting(
        "", kinds.text(empty=True), "A system turn before the conversation; empty for none."
    )
    think: str | None = setting(
        None,
        kinds.one_of("on", "off"),
        "Reasoning before the answer; unset: as the model does by itself.",
        example="off",
    )
    max_tokens: int | None = setting(
        None,
        kinds.whole(1),
        "The longest reply in tokens; unset: until the model ends it.",
        example=1024,
    )


@dataclass(frozen=True, slots=True)
class History:
    """Conversations on disk."""

    save: bool = setting(True, kinds.flag(), "Keep conversations on this machine.")


@dataclass(frozen=True, slots=True)
class Power:
    """Watts, joules and sleep."""

    source: str = setting(
        "auto",
        kinds.one_of("auto", "apple", "macmon", "nvml", "rapl", "off"),
        "Where watts are read; auto takes what measures the chip that computes.",
    )
    keep_awake: bool = setting(
        True, kinds.flag(), "Hold off idle sleep during a reply or a benchmark."
    )


@dataclass(frozen=True, slots=True)
class App:
    """The terminal app."""

    theme: str = setting("macspec-dark", kinds.text(), "Colours; the app lists them.")
    send: str = setting(
        "enter",
        kinds.one_of("enter", "ctrl+j"),
        "The key that sends the prompt; the other one makes a new line.",
    )
    panel: bool = setting(True, kinds.flag(), "Show the live panel.")
    tint: bool = setting(False, kinds.flag(), "Show in the text which tokens were drafted.")
    reasoning: bool = setting(
        False, kinds.flag(), "Leave reasoning open when the answer starts, instead of folding it."
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set."""

    models: Models = field(default_factory=Models)
    speculation: Speculation = field(default_factory=Speculation)
    sampling: Sampling = field(default_factory=Sampling)
    reply: Reply = field(default_factory=Reply)
    history: History = field(default_factory=History)
    power: Power = field(default_factory=Power)
    app: App = field(default_factory=App)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of the app by action, where they are not the usual ones."""
    pairs: tuple[Mapping[str, Any], ...] = setting(
        (), kinds.tables(), "Pairs to add to the catalogue, each as a table [[pairs]]."
    )
