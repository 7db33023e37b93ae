"""Heads: small modules that draft from the hidden rows of a target."""

from .head import Head
from .opening import LoadedHead, kind_of, open_head

__all__ = ["Head", "LoadedHead", "kind_of", "open_head"]
