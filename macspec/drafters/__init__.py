"""Drafters: whatever proposes the next tokens."""

from .corpus import Corpus
from .drafter import Context, Drafter, Proposal
from .lookup import Lookup
from .model import DraftModel
from .ngram import NGram
from .portfolio import Portfolio
from .suffix import Suffix

__all__ = [
    "Context",
    "Corpus",
    "DraftModel",
    "Drafter",
    "Lookup",
    "NGram",
    "Portfolio",
    "Proposal",
    "Suffix",
]
