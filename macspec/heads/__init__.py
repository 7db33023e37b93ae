"""Heads: small modules that draft from the hidden rows of a target."""

from .head import Head
from .naming import HeadFiles, head_in, own_head
from .opening import LoadedHead, open_head, open_own_head

__all__ = ["Head", "HeadFiles", "LoadedHead", "head_in", "open_head", "open_own_head", "own_head"]
