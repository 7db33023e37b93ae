"""Checks kernels in a process of its own: ``python -m macspec.metal.checker PARENT``.

Standard input holds what to check, pickled. For each variant a line ``{"checking": NAME}`` goes to
standard output, then ``{"outcome": ...}``; at the end of the process's use, ``{"fault": ...}``.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from macspec.errors import brief
from macspec.parent import exit_with_parent

from .faults import FAULT, gpu_answers, is_innocent
from .outcomes import Outcome


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
            if is_innocent(error):
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
