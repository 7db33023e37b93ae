"""The drafters that run the models of a pair."""

from __future__ import annotations

from ..choices import BLOCKS, MAX_DEPTH
from ..control import RecentAcceptance
from ..heads.assistant import Assistant
from ..models.cached import CachedModel
from ..models.pair import Pair
from ..models.prefill import PrefillChunk
from ..models.vocabulary import TranslatedModel
from .assistant import AssistantModel
from .block import BlockDrafter, BlockModel
from .chain import ChainDrafter, Stepper
from .head import HeadModel
from .masked import MaskedModel
from .model import DraftModel


def drafters_of(
    pair: Pair, target: CachedModel, chunk: PrefillChunk
) -> tuple[list[ChainDrafter], str | None]:
    """Drafters for a pair's draft model and head, and why one that was asked for is off.

    Args:
        target: the pair's; from now on it shows what the head wants.
        chunk: of the draft model's prefill.
    """
    target.hide()
    drafters: list[ChainDrafter] = []
    off, recent = pair.draft_off, RecentAcceptance()
    for found in (_draft_model(pair, chunk), _head(pair, target)):
        if isinstance(found, str):
            off = found
        elif isinstance(found, BlockModel):
            drafters.append(BlockDrafter(found, recent))
        elif found is not None:
            drafters.append(ChainDrafter(found, recent))
    return drafters, off


def _draft_model(pair: Pair, chunk: PrefillChunk) -> Stepper | str | None:
    """A pair's draft model, or why it is off; None: it has none."""
    if pair.draft is None:
        return None
    module, steps = pair.draft.module, MAX_DEPTH + 1
    if pair.translation is not None:
        model: CachedModel = TranslatedModel(module, pair.translation, steps=steps, chunk=chunk)
    else:
        model = CachedModel(module, pair.vocabulary, steps=steps, chunk=chunk)
    if model.cache.reason is not None:
        return f"the draft model {pair.draft.name} is {model.cache.rollback_by}"
    mask = pair.draft.config.get("pard_token")
    if isinstance(mask, int) and 0 <= mask < pair.draft.width and not pair.translation:
        return MaskedModel(model, pair.draft.context, mask)
    return DraftModel(model, pair.draft.context)


def _head(pair: Pair, target: CachedModel) -> Stepper | str | None:
    """A pair's head, or why it is off; None: it has none."""
    if pair.head is None:
        return None
    head = pair.head.module
    reason = target.show(head.wanted).tap.reason
    if reason is not None:
        target.hide()
        return f"the head {pair.head.name} is off: {pair.target.name} cannot feed it: {reason}"
    if isinstance(head, Assistant):
        return AssistantModel(head, target, pair.context)
    kind = BlockModel if pair.head.kind in BLOCKS else HeadModel
    return kind(head, target, pair.context)
