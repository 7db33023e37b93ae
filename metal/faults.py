"""What MLX's errors say of a GPU that had a fault, and whether it still computes."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx

from macspec.errors import is_out_of_memory

FAULT = "Command buffer execution failed"
"""Of work that was sent to the GPU."""
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
    """Whether an error of MLX says that the GPU did not do what it was sent."""
    text = str(error)
    return isinstance(error, RuntimeError) and (FAULT in text or COMPILER in text)


def is_innocent(error: BaseException) -> bool:
    """Whether no kernel can have caused such an error."""
    return INNOCENT in str(error) or is_out_of_memory(error)
