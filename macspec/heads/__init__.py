"""Heads: small modules that draft from the hidden rows of a target."""

from .head import Head
from .naming import HeadFiles, head_in, own_head
from .opening import LoadedHead, open_head

__all__ = ["Head", "HeadFiles", "LoadedHead", "head_in", "open_head", "own_head"]
