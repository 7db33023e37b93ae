"""A target whose passes run on all ranks.

Every rank holds its part of the module and of the caches. What changes a cache, and every pass, is
a method here, which rank 0 calls for its own reasons and the others because it told them so.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import mlx.core as mx

from ..models.cached import CachedModel, TreePass
from ..tap import FINAL, HiddenRows
from ..verification import Tree
from .sharding import is_pipeline

ELSEWHERE = "some of its layers are on other machines"


class Others(Protocol):
    """The other ranks, as rank 0 sees them."""

    core: Any
    """MLX's group of all ranks."""

    def tell(self, name: str, *arguments: Any) -> None:
        """Have them do something."""
        ...

    def ask(self, name: str, *arguments: Any) -> int:
        """The same, with an answer from each; returns its number."""
        ...

    def agree(self, number: int, own: Any) -> None:
        """Wait for answers that must be this rank's own.

        Raises:
            HostError: they are not, or one could not do it.
        """
        ...


class SharedModel(CachedModel):
    """A rank's part of a model and its cache.

    Args:
        core: MLX's group of the ranks.
    """

    def __init__(self, core: Any, *arguments: Any, **settings: Any) -> None:
        self.core = core
        super().__init__(*arguments, **settings)

    def entering(self, tokens: mx.array) -> mx.array:
        """The tokens of rank 0; the others give zeros."""
        return mx.distributed.all_sum(tokens.astype(mx.uint32), group=self.core)

    def show(self, wanted: Sequence[int]) -> HiddenRows:
        if not is_pipeline(self.module):
            return super().show(wanted)
        hidden = super().show([FINAL])
        if set(wanted) != {FINAL}:
            hidden.tap.reason = ELSEWHERE
        return hidden

    @property
    def ways(self) -> list[Any]:
        """What trials have found; it must be the same on all ranks."""
        cache = self.cache
        return [cache.reason, cache.rollback_by, cache.checkpoints, self.absorbed.reason]


class LeadModel(SharedModel):
    """Rank 0's part; errors as ``Others.agree``.

    Args:
        target: the number of the target on the other ranks.
    """

    def __init__(
        self,
        group: Others,
        target: int,
        module: Any,
        vocabulary: int,
        *,
        kv_bits: int | None = None,
        **more: Any,
    ) -> None:
        self._group = group
        self._number = next(_numbers)
        asked = self.ask("model", target, vocabulary, kv_bits)
        weakref.finalize(self, group.tell, "forget", self._number).atexit = False
        super().__init__(group.core, module, vocabulary, kv_bits=kv_bits, **more)
        group.agree(asked, self.ways)

    def tell(self, name: str, *arguments: Any) -> None:
        """Have the other ranks do something with their parts."""
        self._group.tell(name, self._number, *arguments)

    def ask(self, name: str, *arguments: Any) -> int:
        return self._group.ask(name, self._number, *arguments)

    def trees(self) -> TreePass:
        asked = self.ask("trees")
        trees = LeadTrees(self)
        self._group.agree(asked, trees.reason)
        return trees

    def show(self, wanted: Sequence[int]) -> HiddenRows:
        asked = self.ask("show", list(wanted))
        hidden = super().show(wanted)
        self._group.agree(asked, hidden.tap.reason)
        return hidden

    def hide(self) -> None:
        if self.hidden is not None:
            self.tell("hide")
        super().hide()

    def read(self, tokens: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        self.tell("read", len(tokens), list(boundaries))
        super().read(tokens, boundaries)

    def logits(
        self, tokens: mx.array, rows: int, dispatch: Callable[..., None] | None = None
    ) -> mx.array:
        self.tell("logits", tokens.shape[0], rows, dispatch is not None)
        return super().logits(tokens, rows, dispatch)

    def rollback(self, length: int) -> None:
        if self.cache.length > length or self.cache.torn:
            self.tell("rollback", length)
        super().rollback(length)


_numbers = itertools.count(1)


class LeadTrees(TreePass):
    """Rank 0's part of passes over trees."""

    def __init__(self, model: LeadModel) -> None:
        self._lead = model
        super().__init__(model)

    def logits(self, unread: mx.array, tree: Tree) -> mx.array:
        self._lead.tell("tree", unread.shape[0], list(tree.parents))
        return super().logits(unread, tree)

    def keep(self, path: Sequence[int]) -> None:
        self._lead.tell("keep", list(path))
        super().keep(path)
