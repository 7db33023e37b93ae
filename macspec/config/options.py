"""What a command line leaves open is filled in from the settings."""

from __future__ import annotations

import argparse

from .effective import Effective, load
from .schema import BUILT_IN, NONE

FILLED = {
    "context": "models.context",
    "kv_bits": "models.kv_bits",
    "method": "speculation.method",
    "depth": "speculation.depth",
    "accept": "speculation.accept",
    "learn": "speculation.learn",
    "kernels": "speculation.kernels",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "min_p": "sampling.min_p",
    "repetition_penalty": "sampling.repetition_penalty",
    "presence_penalty": "sampling.presence_penalty",
    "frequency_penalty": "sampling.frequency_penalty",
    "seed": "sampling.seed",
    "max_tokens": "reply.max_tokens",
    "save": "history.save",
}
"""Options whose default is None, and the settings that they come before."""

TEMPLATED = {"system": "reply.system", "think": "reply.think"}
"""The same, where the prompt goes through the chat template."""


def fill(options: argparse.Namespace, settings: Effective | None = None) -> Effective:
    """Give every option that was left out its value from the settings.

    A target on the command line leaves the settings' draft out, which belongs to another target.

    Args:
        options: changed in place; what is not None stays.
        settings: None: the user's own.

    Returns:
        The settings.

    Raises:
        BadOptionError: as ``load``.
    """
    settings = settings or load()
    places = dict(FILLED)
    if not getattr(options, "raw", False):
        places.update(TEMPLATED)
    if options.target is None:
        places["target"] = "models.target"
        places["draft"] = "models.draft"
    for name, key in places.items():
        if getattr(options, name, name) is None:
            setattr(options, name, settings.value(key))
    options.target = None if options.target == BUILT_IN else options.target
    options.draft = None if options.draft == NONE else options.draft
    return settings
