"""What MLX's errors say of a GPU that had a fault, and whether it still computes."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx

FAULT = "Command buffer execution failed"
"""Of work that was sent to the GPU."""
MEMORY = "Insufficient Memory"
INNOCENT = "InnocentVictim"
"""The name of Metal's error for work that was lost by the fault of another program's."""
COMPILER = "[metal::Device]"
"""With what messages about a kernel that cannot be built begin."""
SIZE = 1024
"""Numbers by which the GPU shows that it computes."""

_numbers = itertools.count(1)


def gpu_answers() -> bool:
    """Whether the GPU still computes; it may silently ignore what a process sends after a fault."""
    number = next(_numbers)
    try:
        found: Any = mx.sum(mx.arange(SIZE) * number).item()
    except RuntimeError:
        return False
    return bool(found == number * SIZE * (SIZE - 1) // 2)


def is_fault(error: BaseException) -> bool:
    """Whether an error of MLX may come from a kernel; running out of memory does not."""
    text = str(error)
    return (
        isinstance(error, RuntimeError)
        and MEMORY not in text
        and (FAULT in text or COMPILER in text)
    )


def is_innocent(error: BaseException) -> bool:
    """Whether what ran in a fault has nothing to do with it."""
    return INNOCENT in str(error)
