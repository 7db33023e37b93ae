"""What the harness raises against a kernel."""

from __future__ import annotations

from collections.abc import Sequence


class Fault(Exception):  # noqa: N818 (a finding, not an error of the harness)
    """A kernel broke a rule of Metal, or its result depends on what it must not depend on.

    Attributes:
        layer: what found it: ``lint``, ``limits``, ``check``, ``run`` (instrumented), ``order``.
        kernel: the function's name.
        lines: one a finding, with the place in the ``.metal`` file where it is known.
    """

    def __init__(self, layer: str, kernel: str, lines: Sequence[str]) -> None:
        self.layer, self.kernel, self.lines = layer, kernel, list(lines)
        super().__init__(f"{kernel} ({layer}):\n" + "\n".join(self.lines))
