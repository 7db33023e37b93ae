"""Drafters propose the next tokens."""

from .corpus import Corpus
from .drafter import Context, Drafter, Proposal
from .lookup import Lookup, NGram, Suffix
from .model import DraftModel
from .portfolio import Portfolio

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
