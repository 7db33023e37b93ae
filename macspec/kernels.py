"""MLX's kernels for a session's passes; ``macspec.metal.dispatch`` puts faster ones in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx

from .inuse import InUse
from .noise import Noise
from .pending import Recurrence
from .sampling import Sampling
from .verification import Rule, Tree, TreeVerdict, Verdict, follow

MODES = ("auto", "off", "strict")

Draw = Callable[[mx.array, int], tuple[mx.array, mx.array | None] | None]
"""From logits [1, V] and the number of the step to a token [1] and, where the rule needs it, the
log-probabilities [1, V] that it was drawn from; None: draw from ``Sampling.scores``."""

Walk = Callable[[tuple[mx.array, ...], mx.array], tuple[mx.array, mx.array | None]]
"""From the parts of a block's n rows, see ``heads.block.Block.prepared``, and the token [1] before
them to tokens [n] and, where the rule needs them, the log-probabilities [n, V] they were drawn
from."""
Walks = Callable[[Any, int], Walk | None]
"""How the tokens of a block are drawn, for a block drafter and a number of ids; None: one by one,
as those of a chain."""


class Kernels:
    """MLX's own kernels and the portable rules.

    Args:
        state: which kernels these are and why, in half a sentence for the user.
        notices: why MLX's kernels are kept, each a line for the user.
        in_use: is told which of macspec's run.
        fallback: what failed here and is left to MLX, a line for the user; None: nothing did.
    """

    key = "mlx"
    """What measured costs depend on."""

    faults = 0
    """Of the GPU; what was computed before the newest one is not trusted."""

    retired = False
    """Whether macspec's ran in one of them, and are used no more."""

    def __init__(
        self,
        state: str = "MLX's own",
        notices: Sequence[str] = (),
        in_use: InUse | None = None,
        fallback: str | None = None,
    ) -> None:
        self.state = state
        self.notices = tuple(notices)
        self.in_use = in_use or InUse()
        self.fallback = fallback

    def check(self) -> None:
        """Something was read that kernels may have computed.

        MLX may let a result be read that a fault has spoiled. It raises when work is encoded.

        Raises:
            RuntimeError: there was a fault.
        """
        if self.in_use.running:
            mx.async_eval(mx.zeros(1) + 1)

    def landed(self, round: set[str]) -> None:
        """The result of a round that ``in_use.begin`` began was read; errors as ``check``."""
        self.check()
        self.in_use.landed(round)

    def blame(self, remember: bool = True) -> bool:
        """After a fault of the GPU: if any of macspec's kernels ran, retire and remember which;
        returns whether any did."""
        self.faults += 1
        if not self.in_use.blame(remember):
            return False
        self.retired = True
        self.state = "MLX's own: the GPU had a fault while macspec's ran"
        self.retire()
        return True

    def retire(self) -> None:
        """Leave everything to MLX from now on."""

    def idle(self) -> Iterator[None]:
        """Work for idle times, which can be left after any step."""
        return iter(())

    @property
    def recurrences(self) -> Sequence[Recurrence]:
        """Of the target's stateful layers; the same objects at every call."""
        return ()

    def passing(
        self, rows: int, sees: Sequence[int] | None = None, mask: mx.array | None = None
    ) -> AbstractContextManager[None]:
        """The context of one pass of the target.

        Args:
            sees: of a tree's pass, bit j of entry i says that row i sees row j; None: a chain.
            mask: what the model's layers get for ``sees``, bool [rows, positions].
        """
        return nullcontext()

    def accept(
        self,
        rule: Rule,
        sampling: Sampling,
        logits: mx.array,
        drafted: mx.array,
        log_q: mx.array | None,
        noise: Noise | None,
        recent: mx.array | None,
    ) -> Verdict:
        """The verdict on a chain: ``rule.accept`` after ``sampling.weights``."""
        return rule.accept(sampling.weights(logits, recent), drafted, log_q, noise)

    def follow(
        self,
        sampling: Sampling,
        logits: mx.array,
        tree: Tree,
        noise: Noise | None,
        recent: mx.array | None,
    ) -> TreeVerdict:
        """The verdict on a tree: ``verification.follow`` after ``sampling.weights``."""
        return follow(sampling.weights(logits, recent), tree, noise)

    def draw(self, rule: Rule, sampling: Sampling, noise: Noise | None) -> Draw | None:
        """How a draft model draws the tokens of a chain; None: always from ``Sampling.scores``."""
        return None

    def walks(self, rule: Rule, sampling: Sampling, noise: Noise | None) -> Walks | None:
        """How the tokens of blocks are drawn; None: as those of chains."""
        return None
