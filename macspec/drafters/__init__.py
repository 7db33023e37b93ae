"""Drafters propose the next tokens."""

from .corpus import Corpus
from .drafter import Context, Drafter, Proposal
from .lookup import Lookup, NGram, Suffix
from .model import DraftModel
from .portfolio import Portfolio
