"""Which draft models fit which targets, found without reading a weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cache import ModelCache
from ..errors import MacspecError
from .loading import Model, open_model
from .memory import MemoryEstimate
from .pair import mismatch, vocabulary_size


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model on this machine, opened as far as the gates need it."""

    name: str
    model: Model | None
    """None where it cannot be loaded."""
    estimate: MemoryEstimate | None
    reason: str | None
    """Why it cannot be loaded, or runs plain; None where nothing is against it."""


@dataclass(frozen=True)
class Match:
    """A target and a draft model, and why they do not fit together."""

    target: str
    draft: str
    reason: str | None
    """In one sentence; None where the draft model can draft for the target."""


def candidate(name: str, folder: Path) -> Candidate:
    """Open a model; what is wrong with it is said in ``reason`` and not raised."""
    try:
        model, estimate = open_model(name, folder)
        return Candidate(name, model, estimate, ModelCache(model.module).reason)
    except MacspecError as error:
        return Candidate(name, None, None, str(error).removeprefix(f"{name}: "))


def matches(candidates: Sequence[Candidate]) -> Iterator[Match]:
    """Every pair of a model and a smaller one.

    Models that cannot be loaded are in no pair.
    """
    able = [it for it in candidates if it.model is not None]
    for target in able:
        for draft in able:
            assert target.model is not None
            assert draft.model is not None
            if draft.model.parameters < target.model.parameters:
                yield Match(target.name, draft.name, why_not(target, draft))


def why_not(target: Candidate, draft: Candidate) -> str | None:
    """Why one cannot draft for the other, in one sentence; None if it can."""
    assert target.model is not None
    assert draft.model is not None
    if target.reason is not None:
        return target.reason
    if draft.reason is not None:
        return f"as a draft model it would have to take tokens back, and {draft.reason}"
    vocabulary = min(target.model.width, vocabulary_size(target.model.tokenizer))
    return mismatch(target.model, draft.model, vocabulary)
