"""Which kernel a place of a pass takes: what passed and was fastest here for its rows and shape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from macspec.inuse import InUse
from macspec.kernels import Draw, Kernels, Walk, Walks
from macspec.noise import Noise
from macspec.pending import Recurrence
from macspec.sampling import Sampling
from macspec.verification import Rule, Tree, TreeVerdict, Verdict
from macspec.verification.match import Keyed

from . import accept, mamba2, verify_attention, walks
from .hooks import Hooks
from .matmul import STRICT, Matmul, prepared, supports
from .outcomes import Outcome
from .recurrences import NETS, Net
from .self_check import Checking
from .variants import (
    ACCEPT,
    ATTENTION,
    ATTENTION_ROWS,
    CHOICE_ROWS,
    RECURRENCE_ROWS,
    SAMPLE,
    WALK_ROWS,
    Choice,
    Variant,
    at_least,
    length_of,
    matmul_rows,
    matrix_of,
)
from .verify_attention import Attention, Packing

ORDERED = (STRICT, mamba2.KERNEL.name)
"""Kernels that give several rows the bits that MLX gives each of them alone."""


@dataclass(frozen=True)
class Chosen:
    """A recurrence's kernel, for the numbers of rows at which it is used."""

    net: Net
    points: set[int]
    uses: Callable[[Variant], bool]
    """Told what is about to run."""

    @property
    def stock(self) -> Callable[..., Any]:
        return self.net.stock

    def takes(self, rows: int) -> bool:
        return at_least(rows, RECURRENCE_ROWS) in self.points

    def rows(self, arguments: Mapping[str, Any]) -> Any:
        return self.net.rows(arguments)

    def run(
        self, state: mx.array | None, before: Any, kept: int, rows: Any
    ) -> tuple[mx.array, mx.array]:
        y, after = self.net.run(state, before, kept, rows)
        point = at_least(y.shape[1], RECURRENCE_ROWS) or 0
        self.uses(Variant(self.net.kernel, self.net.shape(rows), point))
        return y, after


class MetalKernels(Kernels):
    """The kernels of one target's passes.

    Args:
        outcomes: of every variant that its passes, and those of the draft model, could use.
        unsupported: what keeps MLX's kernels in any case, each a line for the user.
        strict: take order-preserving matmuls, however slow.
        rest: checks what was not checked yet, step by step.
        faults: remembers which kernels ran in a fault; see ``InUse``.
        cut_short: why the self-check did not get to its end, if it did not.
    """

    def __init__(
        self,
        module: Module,
        outcomes: Mapping[Variant, Outcome],
        unsupported: Sequence[str] = (),
        *,
        strict: bool = False,
        rest: Callable[[], Generator[Checking, None, None]] | None = None,
        faults: Path | None = None,
        cut_short: str = "",
    ) -> None:
        self._rest = rest
        early = [f"the self-check ended early: {cut_short}"] if cut_short else []
        self.unsupported = (*unsupported, *early)
        self.outcomes, self.strict = dict(outcomes), strict
        self._hooks = Hooks(module)
        self._matrices = {id(layer): matrix_of(layer) for layer in self._hooks.layers}
        ordered = ORDERED if strict else ()
        used = [
            variant
            for variant, outcome in outcomes.items()
            if outcome.faster or (variant.kernel in ordered and outcome.failure is None)
        ]
        self._others = {v: str(v) for v in used if not isinstance(v.shape, Matmul)}
        in_use = InUse(map(str, used), faults if used else None)
        found = map(self._chosen, NETS)
        self._recurrences = tuple(it for it in found if it.points)
        self._matmuls: dict[tuple[Matmul, int], Variant] = {}
        self._multiply: dict[Any, tuple[Callable[[mx.array], mx.array | None], str]] = {}
        """By layer, shape and type of the rows, as they are asked for; with the variant's name."""
        for variant in sorted(used, key=lambda variant: outcomes[variant].seconds or 0.0):
            if isinstance(variant.shape, Matmul):
                self._matmuls.setdefault((variant.shape, variant.rows), variant)
        names = ", ".join(sorted({variant.kernel for variant in used}))
        super().__init__(
            f"macspec's {names}, for {len(used)} of {len(outcomes)} shapes"
            if used
            else "MLX's own: none of macspec's passed the self-check and was faster here",
            (*self.unsupported, *_refused(outcomes, used)),
            in_use,
            _fallback(outcomes, early),
        )
        if used:
            chosen = [f"{at}: {it.kernel}" for at, it in self._matmuls.items()]
            text = "\n".join(sorted([*chosen, *map(str, self._others)]))
            self.key = hashlib.sha256(text.encode()).hexdigest()[:16]

    def idle(self) -> Iterator[None]:
        if self._rest is None:
            return
        state = self.state
        try:
            with closing(self._rest()) as steps:
                for step in steps:
                    self.state = f"{state}; checking the others: {step.done} of {step.total}"
                    yield
        finally:
            self.state = state

    def _chosen(self, net: Net) -> Chosen:
        asked = [variant for variant in self.outcomes if variant.kernel == net.kernel]
        unused = {variant.rows for variant in asked if variant not in self._others}
        return Chosen(net, {variant.rows for variant in asked} - unused, self._uses)

    def retire(self) -> None:
        self._rest = None
        for it in self._recurrences:
            it.points.clear()
        for table in (self._others, self._matmuls, self._multiply):
            table.clear()

    @property
    def recurrences(self) -> Sequence[Recurrence]:
        return self._recurrences

    @contextmanager
    def passing(
        self, rows: int, sees: Sequence[int] | None = None, mask: mx.array | None = None
    ) -> Iterator[None]:
        if rows < 2:
            yield
            return
        tree = None if sees is None or mask is None else (tuple(sees), mask)
        with self._hooks.handled(_Pass(self, tree)):
            yield

    def matmul(self, layer: Any, x: mx.array) -> mx.array | None:
        """``x`` [..., K] times the matrix of a layer of the target; None: leave it to MLX."""
        key = id(layer), x.shape, x.dtype
        found = self._multiply.get(key)
        if found is None:
            found = self._multiply[key] = self._multiplied(layer, x)
        multiply, name = found
        if name:
            self.in_use.note(name)
        return multiply(x)

    def _multiplied(
        self, layer: Any, x: mx.array
    ) -> tuple[Callable[[mx.array], mx.array | None], str]:
        """What multiplies such ``x`` by the matrix of a layer, and the name of its variant."""
        matrix = self._matrices.get(id(layer))
        if matrix is None or supports(matrix, x.dtype) or x.size != x.shape[-2] * x.shape[-1]:
            return _nothing, ""
        point = matmul_rows(x.shape[-2], strict=self.strict)
        found = self._matmuls.get((matrix.shape(x.dtype), point or 0))
        if found is None or x.ndim >= 4:
            return _nothing, ""
        return prepared(found.kernel, x, matrix), str(found)

    def _uses(self, variant: Variant) -> bool:
        """Whether a variant is in use; it is about to run then."""
        name = self._others.get(variant)
        if name is not None:
            self.in_use.note(name)
        return name is not None

    def attends(self, shape: Attention, count: int, length: int) -> bool:
        """Whether macspec's kernel computes this attention at this number of rows and context."""
        point = at_least(count, ATTENTION_ROWS)
        if point is None or shape.unsupported(count) is not None:
            return False
        at = replace(shape, length=length_of(length))
        return self._uses(Variant(ATTENTION, at, point))

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
        how = self._choosing(ACCEPT, sampling, logits, noise, log_q is not None)
        if how is None:
            return super().accept(rule, sampling, logits, drafted, log_q, noise, recent)
        return accept.accept(how, logits, drafted, log_q, noise)

    def follow(
        self,
        sampling: Sampling,
        logits: mx.array,
        tree: Tree,
        noise: Noise | None,
        recent: mx.array | None,
    ) -> TreeVerdict:
        how = self._choosing(ACCEPT, sampling, logits, noise, False)
        if how is None:
            return super().follow(sampling, logits, tree, noise, recent)
        return accept.follow(how, logits, tree, noise)

    def draw(self, rule: Rule, sampling: Sampling, noise: Noise | None) -> Draw | None:
        keeps_q, own = self._drawing(rule, noise)

        def draw(logits: mx.array, step: int) -> tuple[mx.array, mx.array | None] | None:
            how = self._choosing(SAMPLE, sampling, logits, own, keeps_q)
            if how is None:
                return None
            return accept.draft_sample(how, logits, own, step, keeps_q=keeps_q)

        return draw

    def _drawing(self, rule: Rule, noise: Noise | None) -> tuple[bool, Noise | None]:
        """Whether drafts keep what they were drawn from, and the noise that they are drawn with."""
        keeps_q = rule.keeps_q and noise is not None
        # Match drafts the most likely token, whatever the target will draw.
        return keeps_q, noise if keeps_q or rule.name == Keyed.name else None

    def walks(self, rule: Rule, sampling: Sampling, noise: Noise | None) -> Walks | None:
        if sampling.logit_bias or sampling.penalised:
            return None
        keeps_q, own = self._drawing(rule, noise)

        def walk(head: Any, width: int) -> Walk | None:
            shape = walks.Walk.of(head, width)
            variant = None if shape is None else Variant(shape.kernel, shape, WALK_ROWS)
            if shape is None or variant not in self._others:
                return None
            row = mx.zeros((1, width))
            by_row = shape.kernel == walks.MARKOV.name
            if by_row and self._choosing(SAMPLE, sampling, row, own, keeps_q) is None:
                return None

            self._uses(variant)

            def walked(
                parts: tuple[mx.array, ...], anchor: mx.array
            ) -> tuple[mx.array, mx.array | None]:
                return walks.walked(head, parts, anchor, width, sampling, own, keeps_q=keeps_q)

            return walked

        return walk

    def _choosing(
        self,
        kernel: str,
        sampling: Sampling,
        logits: mx.array,
        noise: Noise | None,
        block: bool,
    ) -> Sampling | None:
        """How a kernel is to choose, where the one for that is in use."""
        if accept.supports(logits) is not None or sampling.logit_bias or sampling.penalised:
            return None
        width = logits.shape[-1]
        if noise is None:
            # No truncation removes the most likely token.
            sampling = replace(sampling, top_k=0, top_p=1.0, min_p=0.0)
        rule = "greedy" if noise is None else "block" if block else "drawn"
        truncated = sampling.top_p < 1 or 0 < sampling.top_k < width
        shape = Choice(rule, truncated, width, logits.dtype)
        return sampling if self._uses(Variant(kernel, shape, CHOICE_ROWS[kernel])) else None


def _fallback(outcomes: Mapping[Variant, Outcome], early: Sequence[str]) -> str | None:
    """What failed and is left to MLX, a line for the user."""
    failed = [f"{it}: {outcome.failure}" for it, outcome in outcomes.items() if outcome.failure]
    count = f"{len(failed)} kernel{'s' * (len(failed) > 1)} failed the self-check on this Mac"
    what = [*early, *([f"{count} ({failed[0]})"] if failed else [])]
    if not what:
        return None
    return f"{'; '.join(what)}: MLX's compute instead; macspec check --kernels lists them"


def _refused(outcomes: Mapping[Variant, Outcome], used: Sequence[Variant]) -> Iterator[str]:
    """What is not used and why: each that failed, and how many are only slower."""
    slower = 0
    for variant, outcome in outcomes.items():
        if outcome.failure is not None:
            yield f"{variant}: not used, {outcome.failure}"
        elif variant not in used:
            slower += 1
    if slower:
        yield f"{slower} shape{'s' * (slower > 1)}: MLX's kernel is as fast or faster"


def _nothing(x: mx.array) -> None:
    """Leaves it to MLX."""


class _Pass:
    """What the places of the target do in one pass."""

    def __init__(
        self, kernels: MetalKernels, tree: tuple[tuple[int, ...], mx.array] | None
    ) -> None:
        self.kernels, self.tree = kernels, tree
        self.matmul = kernels.matmul

    def attention(
        self,
        queries: mx.array,
        keys: Any,
        values: Any,
        scale: float,
        mask: Any,
        sinks: Any,
        packing: Packing,
    ) -> mx.array | None:
        count = queries.shape[2]
        if self.tree is not None and mask is self.tree[1]:
            sees = self.tree[0]
        elif isinstance(mask, str) and mask == "causal":
            sees = verify_attention.causal(count)
        else:
            return None
        # A quantized cache has the type in its scales.
        types = {it[1].dtype if packing.bits else it.dtype for it in (keys, values)}
        same = types == {queries.dtype} and queries.shape[0] == 1
        if sinks is not None or not same or len(sees) != count:
            return None
        shape = Attention.of(queries, keys, values, packing)
        if not self.kernels.attends(shape, count, verify_attention.first(keys).shape[2]):
            return None
        return verify_attention.verify_attention(
            queries, keys, values, sees=sees, scale=scale, packing=packing
        )
