"""Checks kernels in a process of its own: ``python -m macspec.metal.checker PARENT``.

Standard input holds what to check, pickled. For each variant a line ``{"checking": NAME}`` goes to
standard output, then ``{"outcome": ...}``; at the end of the process's use, ``{"fault": ...}``.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import mlx.core as mx

from macspec.errors import brief, is_out_of_memory
from macspec.parent import exit_with_parent

from .outcomes import Outcome

FAULT = "Command buffer execution failed"
"""What MLX's message says when the GPU gave up on work that was sent to it."""
MEMORY = "Insufficient Memory"
COMPILER = "[metal::Device]"
"""With what MLX's messages about a kernel that cannot be built begin."""
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


def serve(
    jobs: Sequence[tuple[Any, int]],
    check: Callable[[Any, int], Outcome],
    answers: Callable[[], bool] = gpu_answers,
) -> None:
    """Check one variant after the other until the GPU has a fault."""

    def tell(**message: Any) -> None:
        print(json.dumps(message), flush=True)

    if not answers():
        tell(fault="the GPU does not answer", lost=True)
        return
    for variant, copies in jobs:
        tell(checking=str(variant))
        outcome: Outcome | None
        try:
            outcome = check(variant, copies)
        except Exception as error:
            if is_out_of_memory(error) or MEMORY in str(error):
                outcome = None
            elif FAULT in str(error):
                tell(fault=f"the GPU reported a fault ({brief(error)})")
                return
            else:
                outcome = Outcome(f"it does not run on this machine ({brief(error)})")
        # Results of a GPU that computes nothing say nothing about a kernel.
        if not answers():
            tell(fault="the GPU stopped answering")
            return
        tell(outcome=None if outcome is None else asdict(outcome))


def main(
    arguments: Sequence[str],
    check: Callable[[Any, int], Outcome] | None = None,
    answers: Callable[[], bool] = gpu_answers,
) -> None:
    """Check what standard input holds; ``check`` and ``answers`` as for ``serve``."""
    exit_with_parent(int(arguments[0]))
    jobs = pickle.load(sys.stdin.buffer)
    if check is None:
        from .timing import outcome_of

        check = outcome_of
    serve(jobs, check, answers)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
