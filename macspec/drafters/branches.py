"""Two continuations that look likely, as one tree."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from .drafter import Proposal


def branched(first: Sequence[int], second: Sequence[int], nodes: int) -> Proposal:
    """A proposal of ``first``, with ``second`` branching off where the two part.

    Args:
        first: the likelier chain; it becomes the first nodes, as far as there is room.
        second: the other one; it adds nothing where one of the two begins with the other.
        nodes: most tokens of the tree.
    """
    first = list(first[:nodes])
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    parted = list(second[shared:][: nodes - len(first)]) if shared < len(first) else []
    tokens = mx.array(first + parted, mx.uint32)
    if not parted:
        return Proposal(tokens)
    behind = range(len(first), len(first) + len(parted) - 1)
    return Proposal(tokens, parents=(*range(-1, len(first) - 1), shared - 1, *behind))
