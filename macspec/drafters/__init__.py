"""Drafters: whatever proposes the next tokens."""

from .drafter import Context, Drafter, Proposal
from .model import DraftModel
from .ngram import NGram

__all__ = ["Context", "DraftModel", "Drafter", "NGram", "Proposal"]
