"""A target and its draft model, loaded and through the gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..assets import pocket
from ..cache import KV_BITS
from ..device import prepare
from ..errors import BadOptionError, PairMismatchError
from . import gates, memory
from .catalog import best
from .footprint import Footprint
from .hub import locate
from .loading import open_model, read_weights
from .machine import unified_memory
from .model import Model

__all__ = ["Model", "Pair", "load_pair"]

BUILT_IN = "using the small pair that is built in; for a real one: "


@dataclass(frozen=True, eq=False)
class Pair:
    """What a session decodes with."""

    target: Model
    draft: Model | None
    """None without a draft model, or where a gate turned it off."""
    vocabulary: int
    """Ids 0 to vocabulary - 1 can be emitted; wider logits are padding."""
    context: int
    """Positions that a session may use; more than the target was made for only where asked for."""
    draft_off: str | None
    """Why the draft model is off, in one sentence; None if it is on or was not asked for."""
    notices: tuple[str, ...]
    """Lines to tell the user once."""
    stop_ids: frozenset[int]
    """Ids that end the model's turn."""
    plan: memory.Plan
    """What it needs of the device's memory."""
    footprint: Footprint = field(repr=False)
    """What the target costs, for another draft model beside it."""

    def read(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Read the weights that are not in memory yet.

        Args:
            progress: told the bytes of ``plan.weights`` read so far; what it raises ends the
                reading.

        Raises:
            OutOfMemoryError, ModelBrokenError: as ``load_pair``.
        """
        before = 0

        def so_far(done: int) -> None:
            progress(before + done)

        with memory.wired():
            for model in (self.target, self.draft):
                if model is not None:
                    read_weights(model, so_far)
                    before += model.weight_bytes


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    context: int | None = None,
    beyond: bool = False,
    kv_bits: int | None = None,
    trust_remote_code: bool = False,
    require_draft: bool = False,
) -> Pair:
    """Load a target and its draft model, and pass them through the gates.

    The gates and the memory plan come before the weights are read. A draft model that does not
    fit its target is left out, and ``Pair.draft_off`` says why.

    Args:
        target: a folder or a Hugging Face id, ``id@revision`` pins one; None for the built-in
            pair.
        draft: a smaller model with the target's vocabulary, None for none (or the built-in one).
        context: positions to plan for, at most the target's own; None for the target's own, or
            as many of them as fit into memory.
        beyond: ``context`` may be more than the target's own. What it says out there means
            nothing; what it costs does.
        kv_bits: bits of the target's quantized cache, for the memory plan; None: not quantized.
        trust_remote_code: run Python code that a model brings.
        require_draft: a draft model that cannot be used is an error.

    Raises:
        BadOptionError: a value out of range, or no draft model where one is required.
        ModelNotFoundError: a model is not here and could not be fetched.
        ModelBrokenError: a model is incomplete, damaged or of an unknown kind.
        PairMismatchError: ``require_draft`` and a gate turned the draft model off.
        OutOfMemoryError: the target does not fit into memory at this context.
    """
    pair = open_pair(
        target,
        draft,
        context=context,
        beyond=beyond,
        kv_bits=kv_bits,
        trust_remote_code=trust_remote_code,
        require_draft=require_draft,
    )
    pair.read()
    return pair


def open_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    context: int | None = None,
    beyond: bool = False,
    kv_bits: int | None = None,
    trust_remote_code: bool = False,
    require_draft: bool = False,
    beside: Pair | None = None,
    held: int = 0,
) -> Pair:
    """Everything of ``load_pair`` but the weights, which ``Pair.read`` reads.

    Args:
        beside: a pair whose target, loaded from the same name, is used again.
        held: bytes of memory that other engines hold.

    Raises:
        As ``load_pair``.
    """
    if kv_bits is not None and kv_bits not in KV_BITS:
        raise BadOptionError(f"--kv-bits {kv_bits}: choose one of {', '.join(map(str, KV_BITS))}")
    if context is not None and context < 1:
        raise BadOptionError(f"--context {context}: give at least 1")
    prepare()
    if require_draft and target is not None and draft is None:
        raise BadOptionError("--method draft needs a draft model: add --draft")

    names = {"target": target, "draft": draft}
    built_in = dict(zip(names, pocket(), strict=True))
    opened: dict[str, tuple[Model, Footprint]] = {}
    found: dict[str, tuple[str, Path]] = {}
    if beside is not None:
        opened["target"] = beside.target, beside.footprint
    for role, name in names.items():
        if role in opened:
            continue
        if name is not None:
            found[role] = (name, locate(name, trust_remote_code=trust_remote_code))
        elif target is None:
            found[role] = (f"built-in {role}", built_in[role])
    for role, (name, path) in found.items():
        opened[role] = open_model(name, path, trust_remote_code=trust_remote_code)
    return _join(
        opened["target"],
        opened.get("draft"),
        notices=[built_in_notice()] if target is None else [],
        context=context,
        beyond=beyond,
        kv_bits=kv_bits,
        require_draft=require_draft,
        held=held,
    )


def built_in_notice() -> str:
    """That no pair was chosen, and how to get the best one that fits this machine."""
    entry = best(unified_memory(), memory.device_limit())
    if entry is None:
        return f"{BUILT_IN}macspec run --target <folder or Hugging Face id> --draft <the same>"
    draft = "" if entry.draft is None else f" --draft {entry.draft}"
    return f"{BUILT_IN}macspec models pull {entry.name}, then --target {entry.target}{draft}"


def _join(
    target: tuple[Model, Footprint],
    draft: tuple[Model, Footprint] | None,
    *,
    notices: list[str],
    context: int | None,
    beyond: bool,
    kv_bits: int | None,
    require_draft: bool,
    held: int,
) -> Pair:
    model, footprint = target
    if context is not None and context > model.context:
        made_for = f"{model.name} was made for {model.context} positions"
        if not beyond:
            raise BadOptionError(f"--context {context}: {made_for}, give at most that")
        notices.append(f"{made_for}: from there to {context}, only forced answers go")
        footprint = replace(footprint, context=context)
    vocabulary = min(model.width, gates.size(model.tokenizer))
    off = gates.why_not(model, draft[0], vocabulary) if draft else None
    advice = "choose a draft model of the target's family"
    fitting = draft[1] if draft and off is None else None
    plan, refused = memory.fit(footprint, fitting, context=context, kv_bits=kv_bits, held=held)
    if refused is not None:
        off = f"target and draft need {refused}"
        advice = "choose a smaller draft model, or a shorter --context"
    if draft is not None and off is not None:
        off = f"the draft model {draft[0].name} is off: {off}"
        if require_draft:
            raise PairMismatchError(f"{off}; {advice}, or another --method")
    drafter = draft[0] if draft is not None and off is None else None
    stop_ids = frozenset(
        token
        for token in model.tokenizer.eos_token_ids
        if isinstance(token, int) and 0 <= token < vocabulary
    )

    if context is None and plan.context < model.context:
        notices.append(
            f"the context is {plan.context} of the model's {model.context} positions, which is "
            f"what fits into {memory.gigabytes(plan.limit)}"
        )
    if drafter is not None:
        said = gates.size_notice(model, drafter), gates.context_notice(drafter, plan.context)
        notices += [notice for notice in said if notice is not None]
    if not stop_ids:
        notices.append(
            f"{model.name} names no token that ends its turn: replies run to --max-tokens, a "
            "--stop text or the end of the context"
        )
    return Pair(
        target=model,
        draft=drafter,
        vocabulary=vocabulary,
        context=plan.context,
        draft_off=off,
        notices=tuple(notices),
        stop_ids=stop_ids,
        plan=plan,
        footprint=footprint,
    )
