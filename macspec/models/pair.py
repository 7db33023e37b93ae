"""A target and its draft model: loaded, and checked against each other before the first token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..assets import pocket
from ..config.schema import BUILT_IN as BUILT_IN_NAME
from ..device import prepare
from ..errors import BadOptionError, PairMismatchError
from ..heads import HeadFiles, LoadedHead, head_in, open_head, own_head
from ..layercaches import KV_BITS
from . import memory
from .catalog import best, drafts_with
from .files import locate
from .loading import Machines, Model, open_model, read_weights
from .machine import unified_memory
from .sidecars import made_for_another
from .vocabulary import Translation, mismatch, translation, vocabulary_of

BUILT_IN = "using the small built-in pair; for a real one: "

LARGE_DRAFT = 1 / 3
"""Share of the target's parameters above which a draft model is called large."""

NARROW_DRAFT = 0.99
"""Share of the target's token ids below which a draft model is called narrow."""


@dataclass(frozen=True, eq=False)
class Pair:
    """What a session decodes with."""

    target: Model
    draft: Model | None
    """None without a draft model, or where it cannot draft for the target."""
    vocabulary: int
    """Ids 0 to vocabulary - 1 can be emitted; wider logits are padding."""
    context: int
    """Positions that a session may use; more than the target supports only where asked for."""
    draft_off: str | None
    """Why the draft model is not used, in one sentence; None if it is, or none was asked for."""
    notices: tuple[str, ...]
    """Lines to tell the user once."""
    stop_ids: frozenset[int]
    """Ids that end the model's turn."""
    plan: memory.MemoryPlan
    """What it needs of the device's memory."""
    translation: Translation | None = None
    """What the draft model reads for ids that it does not know; None if it knows all."""
    head: LoadedHead | None = None
    """What drafts from the target's hidden rows; None without one."""

    def caches(self, positions: int, kv_bits: int | None = None) -> int:
        """Bytes of the caches of a conversation of so many positions."""
        target = self.target.estimate
        whole = target if self.head is None else self.head.beside(target)
        draft = None if self.draft is None else self.draft.estimate
        return memory.Demand(whole, draft, self.plan.limit, kv_bits).caches(positions)

    def read(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Read the weights that are not in memory yet.

        ``progress`` gets the bytes of ``plan.weights`` read so far; raising stops it.
        """
        before = 0

        def so_far(done: int) -> None:
            progress(before + done)

        spread = self.target.spread
        others = None if spread is None else spread.begin_reading(self.plan)
        with memory.wired():
            for model in (self.target, self.draft, self.head):
                if model is not None:
                    read_weights(model, so_far)
                    before += model.weight_bytes
        if others is not None:
            others()


def load_pair(
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
    read: bool = True,
    group: Machines | None = None,
) -> Pair:
    """Load a target and its draft model.

    Whether they fit each other, and the memory, is known before the weights are read. A draft
    model that cannot draft for its target is left out, and ``Pair.draft_off`` says why.

    Args:
        target: a folder or a Hugging Face id, ``id@revision`` pins one; None for the built-in
            pair.
        draft: a smaller model with the target's vocabulary, or a head for the target; None for
            none, or for the built-in pair's own head; ``built-in`` for its draft model. A head in
            the target's own files is used beside a draft model.
        context: positions to plan for, at most the target's own; None for the target's own, or
            as many of them as fit into memory.
        beyond: ``context`` may exceed the target's own. Text out there is meaningless, but its
            cost is real.
        kv_bits: bits of the target's quantized cache, for the memory plan; None: not quantized.
        trust_remote_code: run Python code that a model brings.
        require_draft: a draft model that cannot be used is an error; the built-in pair drafts
            with its own then.
        beside: a pair whose target, loaded from the same name, is used again.
        held: bytes of memory that other engines hold.
        read: False leaves the weights on the disk, for ``Pair.read``.
        group: machines that the target is spread over; None: this one alone.

    Raises:
        BadOptionError: a value out of range, or no draft model where one is required.
        ModelNotFoundError: a model is not here and could not be fetched.
        ModelBrokenError: a model is incomplete, damaged or of an unknown kind.
        PairMismatchError: ``require_draft``, and the draft model cannot be used.
        OutOfMemoryError: the target does not fit into memory at this context.
    """
    if kv_bits is not None and kv_bits not in KV_BITS:
        raise BadOptionError(f"--kv-bits {kv_bits}: choose one of {', '.join(map(str, KV_BITS))}")
    if context is not None and context < 1:
        raise BadOptionError(f"--context {context}: give at least 1")
    prepare()
    if require_draft and draft is None:
        if target is not None:
            raise BadOptionError("--method draft needs a draft model: add --draft")
        draft = BUILT_IN_NAME

    def opened(name: str, folder: Path) -> Model:
        if group is None:
            return open_model(name, folder, trust_remote_code=trust_remote_code)
        return group.open(name, folder, target, trust_remote_code, context, kv_bits)

    model, drafter, files = _opened(target, draft, beside, trust_remote_code, opened)
    if context is not None and context > model.context:
        if not beyond:
            raise BadOptionError(
                f"--context {context}: {model.name} supports at most {model.context} positions"
            )
        model = replace(model, estimate=replace(model.estimate, context=context))
    vocabulary = vocabulary_of(model)
    head, off = None, None
    whole = model if model.spread is None else model.spread.whole
    try:
        if files is not None:
            head = open_head(files, whole)
    except PairMismatchError as error:
        if require_draft:
            raise
        off, drafter = str(error), None
    if drafter is not None:
        off = mismatch(model.tokenizer, drafter.tokenizer)
    advice = "choose a draft model of the target's family"
    fitting = None if drafter is None or off is not None else drafter.estimate
    estimate = model.estimate if head is None else head.beside(model.estimate)
    plan, refused = memory.fit(estimate, fitting, context=context, kv_bits=kv_bits, held=held)
    if model.spread is not None:
        plan = model.spread.fit(plan)
    if refused is not None:
        off = f"target and draft need {refused}"
        advice = "choose a smaller draft model, or a shorter --context"
    if drafter is not None and off is not None:
        off = f"the draft model {drafter.name} is off: {off}"
        if require_draft:
            raise PairMismatchError(f"{off}; {advice}, or another --method")
    pair = Pair(
        target=model,
        draft=drafter if off is None else None,
        vocabulary=vocabulary,
        context=plan.context,
        draft_off=off,
        notices=(),
        stop_ids=frozenset(
            token
            for token in model.tokenizer.eos_token_ids
            if isinstance(token, int) and 0 <= token < vocabulary
        ),
        plan=plan,
        head=head,
        translation=None if drafter is None or off is not None else translation(model, drafter),
    )
    told = [] if target is not None else [built_in_notice()]
    given = files if head is not None and draft is not None else None
    if given is not None and (other := made_for_another(given, model.name)) is not None:
        told.append(f"the head {draft} was made for {other}")
    pair = replace(pair, notices=(*told, *notices(pair, context)))
    if read:
        pair.read()
    return pair


def _opened(
    target: str | None,
    draft: str | None,
    beside: Pair | None,
    trust_remote_code: bool,
    opened: Callable[[str, Path], Model],
) -> tuple[Model, Model | None, HeadFiles | None]:
    """The target, by ``opened``, and the draft model and the head that are to draft for it."""
    built_in, model = pocket(), None if beside is None else beside.target
    folder, given = built_in.target, None
    # Both are located before either is opened, which takes longer.
    if target is not None and model is None:
        folder = locate(target, trust_remote_code=trust_remote_code)
    if draft is not None and draft != BUILT_IN_NAME:
        given = locate(draft, trust_remote_code=trust_remote_code)
    model = model or opened(target or "built-in target", folder)
    if draft is None:
        own = _own_head(model) if target else head_in("built-in head", built_in.head)
        return model, None, own
    if given is None:
        return model, open_model("built-in draft", built_in.draft), _own_head(model)
    if (head := head_in(draft, given)) is not None:
        return model, None, head
    drafter = open_model(draft, given, trust_remote_code=trust_remote_code)
    return model, drafter, _own_head(model)


def _own_head(model: Model) -> HeadFiles | None:
    whole = model if model.spread is None else model.spread.whole
    return own_head(whole.name, whole.path, whole.layers)


def built_in_notice() -> str:
    """That no pair was chosen, and how to get the best one that fits this machine."""
    entry = best(unified_memory(), memory.device_limit())
    if entry is None:
        return f"{BUILT_IN}macspec run --target <folder or Hugging Face id> --draft <the same>"
    head, draft = drafts_with(entry) or (None, None)
    pull = f"macspec models pull {entry.name}{', again with --head' if head else ''}"
    given = "" if draft is None else f" --draft {draft}"
    return f"{BUILT_IN}{pull}, then --target {entry.target}{given}"


def notices(pair: Pair, asked: int | None) -> Iterator[str]:
    """What the user should know of a pair; ``asked`` is the context asked for."""
    target, draft, context = pair.target, pair.draft, pair.context
    if context > target.context:
        yield (
            f"{target.name} supports {target.context} positions: from there to {context} only "
            "forced answers are decoded"
        )
    if asked is None and context < target.context:
        yield (
            f"the context is {context} of the model's {target.context} positions, to fit into "
            f"{memory.gigabytes(pair.plan.limit)}"
        )
    share = 0.0 if draft is None else draft.parameters / max(target.parameters, 1)
    if share > LARGE_DRAFT:
        yield (
            f"the draft model has {share:.0%} of the target's parameters: above "
            f"{LARGE_DRAFT:.0%} drafting rarely pays off, so choose a smaller one"
        )
    if draft is not None and draft.width < NARROW_DRAFT * pair.vocabulary:
        yield (
            f"the draft model has embeddings for {draft.width} of the target's {pair.vocabulary} "
            "token ids: it never drafts the others"
        )
    if draft is not None and draft.context < context:
        yield (
            f"the draft model supports {draft.context} tokens and the context is {context}: it "
            f"stops drafting after {draft.context} tokens"
        )
    if pair.head is not None:
        yield from (f"the head {note}" for note in pair.head.notes)
    if not pair.stop_ids:
        yield (
            f"{target.name} defines no end-of-turn token: replies run to --max-tokens, a --stop "
            "text or the end of the context"
        )
