"""Which kernel a place of a pass takes: what was right and fastest here for its rows and shape."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from macspec.kernels import Draw, Kernels
from macspec.models import Pair
from macspec.noise import Noise
from macspec.sampling import Sampling
from macspec.verification import Rule, Tree, TreeVerdict, Verdict
from macspec.verification.keyed import Keyed

from . import accept, draft_sample, rows, verify_attention
from .affine import Matrix
from .hooks import Hooks
from .proof import Outcome, Proofs, prove
from .survey import Survey, attention_of, matrix_of, product_of, survey, variants, why_not
from .trials import multiply
from .variants import (
    ACCEPT,
    ATTENTION,
    ATTENTION_ROWS,
    CHOICE_ROWS,
    SAMPLE,
    STRICT,
    Attention,
    Choice,
    Product,
    Variant,
    at_least,
    length_of,
    product_rows,
)


def dispatch(pair: Pair, *, strict: bool = False, proofs: Proofs | None = None) -> Dispatch:
    """Have the kernels prove themselves for a pair, as far as they have not yet.

    Args:
        strict: only products that keep the order of MLX's one-row kernels.
        proofs: what is known already; None: what earlier starts found on this machine.
    """
    found, asked = needs(pair, strict=strict)
    outcomes = prove(asked, found.products, proofs or Proofs())
    return Dispatch(pair.target.module, outcomes, found.kept, strict=strict)


def needs(pair: Pair, *, strict: bool = False) -> tuple[Survey, list[Variant]]:
    """What the target's passes ask for, and every variant that they and the draft could use."""
    found = survey(pair.target.module)
    draft = None if pair.draft is None else survey(pair.draft.module)
    return found, variants(found, draft, pair.vocabulary, strict=strict)


class Dispatch(Kernels):
    """The kernels of one target's passes.

    Args:
        module: the target.
        outcomes: of every variant that its passes, and those of the draft model, could use.
        kept: what keeps MLX's kernels in any case, each a line for the user.
        strict: take order-preserving products, however slow.
    """

    def __init__(
        self,
        module: Module,
        outcomes: Mapping[Variant, Outcome],
        kept: Sequence[str] = (),
        *,
        strict: bool = False,
    ) -> None:
        self.outcomes, self.kept, self.strict = dict(outcomes), tuple(kept), strict
        self._hooks = Hooks(module)
        self._matrices = {id(leaf): matrix_of(leaf) for leaf in self._hooks.leaves}
        used = [
            variant
            for variant, outcome in outcomes.items()
            if outcome.faster or (variant.kernel == STRICT and outcome.wrong is None)
        ]
        self._others = {v for v in used if not isinstance(v.shape, Product)}
        self._products: dict[tuple[Product, int], str] = {}
        for variant in sorted(used, key=lambda variant: outcomes[variant].ours or 0.0):
            if isinstance(variant.shape, Product):
                self._products.setdefault((variant.shape, variant.rows), variant.kernel)
        names = ", ".join(sorted({variant.kernel for variant in used}))
        super().__init__(
            f"macspec's {names}, for {len(used)} of {len(outcomes)} shapes"
            if used
            else "MLX's own: none of macspec's is right and faster here",
            (*self.kept, *_refused(outcomes)),
        )
        if used:
            chosen = [f"{at}: {name}" for at, name in self._products.items()]
            text = "\n".join(sorted([*chosen, *map(str, self._others)]))
            self.key = hashlib.sha256(text.encode()).hexdigest()[:16]

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

    def product(self, leaf: Any, x: mx.array) -> mx.array | None:
        """``x`` [..., K] times the matrix of a leaf of the target; None: leave it to MLX."""
        matrix: Matrix | None = self._matrices.get(id(leaf))
        if matrix is None or x.dtype != matrix.dtype:
            return None
        count = x.size // x.shape[-1]
        point = product_rows(count, strict=self.strict)
        name = point and self._products.get((product_of(matrix, x.dtype), point))
        if not name:
            return None
        return multiply(name, x.reshape(count, -1), matrix).reshape(*x.shape[:-1], -1)

    def attends(self, shape: Attention, count: int, length: int) -> bool:
        """Whether so many rows of attention over so long a context are macspec's."""
        point = at_least(count, ATTENTION_ROWS)
        if point is None or why_not(shape, count) is not None:
            return False
        at = replace(shape, length=length_of(length))
        return Variant(ATTENTION, at, point) in self._others

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
        verdict = accept.accept(how, logits, drafted, log_q, noise)
        # Without the path that a tree's verdict has.
        return Verdict(verdict.accepted, verdict.token)

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
        keeps_q = rule.keeps_q and noise is not None
        # Match drafts the most likely token, whatever the target will draw.
        own = noise if keeps_q or rule.name == Keyed.name else None

        def draw(logits: mx.array, step: int) -> tuple[mx.array, mx.array | None] | None:
            how = self._choosing(SAMPLE, sampling, logits, own, keeps_q)
            if how is None:
                return None
            return draft_sample.draft_sample(how, logits, own, step, keeps_q=keeps_q)

        return draw

    def _choosing(
        self,
        kernel: str,
        sampling: Sampling,
        logits: mx.array,
        noise: Noise | None,
        block: bool,
    ) -> Sampling | None:
        """How a kernel is to choose, where the one for that is in use."""
        if rows.supports(logits) is not None or sampling.logit_bias or sampling.penalised:
            return None
        width = logits.shape[-1]
        if noise is None:
            # No truncation removes the most likely token.
            sampling = replace(sampling, top_k=0, top_p=1.0, min_p=0.0)
        rule = "greedy" if noise is None else "block" if block else "drawn"
        truncated = sampling.top_p < 1 or 0 < sampling.top_k < width
        shape = Choice(rule, truncated, width, logits.dtype)
        return sampling if Variant(kernel, shape, CHOICE_ROWS[kernel]) in self._others else None


def _refused(outcomes: Mapping[Variant, Outcome]) -> Iterator[str]:
    """What is not used and why: each that is wrong, and how many are only slower."""
    slower = 0
    for variant, outcome in outcomes.items():
        if outcome.wrong is not None:
            yield f"{variant}: off, {outcome.wrong}"
        elif not outcome.faster and variant.kernel != STRICT:
            slower += 1
    if slower:
        yield f"{slower} shape{'s' * (slower > 1)}: MLX's kernel is as fast or faster"


@dataclass(frozen=True)
class _Pass:
    """What the places of the target do in one pass."""

    kernels: Dispatch
    tree: tuple[tuple[int, ...], mx.array] | None

    def product(self, leaf: Module, x: mx.array) -> mx.array | None:
        return self.kernels.product(leaf, x)

    def attention(
        self, queries: mx.array, keys: Any, values: Any, scale: float, mask: Any, sinks: Any
    ) -> mx.array | None:
        count = queries.shape[2]
        if self.tree is not None and mask is self.tree[1]:
            sees = self.tree[0]
        elif isinstance(mask, str) and mask == "causal":
            sees = verify_attention.causal(count)
        else:
            return None
        same = queries.dtype == keys.dtype == values.dtype and queries.shape[0] == 1
        if sinks is not None or not same or len(sees) != count:
            return None
        shape, length = attention_of(queries, keys, values), keys.shape[2]
        if not self.kernels.attends(shape, count, length):
            return None
        return verify_attention.verify_attention(queries, keys, values, sees=sees, scale=scale)
