"""Drafters propose the next tokens."""

from .assistant import AssistantModel
from .block import BlockDrafter, BlockModel
from .chain import ChainDrafter, Reader, Stepper, Trial
from .corpus import Corpus
from .drafter import Context, Drafter, Proposal
from .head import HeadModel
from .lookup import Lookup, NGram, Suffix
from .masked import MaskedModel
from .model import DraftModel
from .portfolio import Portfolio
