"""``macspec check``: the machine, the pair, and a self-check that speculation is lossless here."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import mlx.core as mx

from ..assets import prompts
from ..checked import remember_check
from ..choices import BLOCKS, MODELS
from ..device import backend, on_metal, prepare
from ..divergence import Divergence, choice_scores, explain, first_difference
from ..errors import BadOptionError
from ..heads import LoadedHead
from ..heads.agreement import Agreement
from ..heads.blockcheck import Comparison
from ..metal.outcomes import Outcome
from ..metal.report import report
from ..metal.start import checked_kernels, kernels_for
from ..metal.variants import Variant, variants_for
from ..models import Model, Pair, load_pair
from ..models.cached import CachedModel
from ..models.machine import unified_memory
from ..models.sidecars import label
from ..models.template import Template
from ..plaintext import one_line
from ..power import awake
from ..power.choice import check_lines
from ..sampling import Sampling
from ..session import Session
from ..terminal import Output, interruptible
from .checking import shown_check
from .table import DASH, Table

GREEDY = Sampling(temperature=0)
KEYED = Sampling(temperature=0.8, seed=20)
DEPTH = 4

Message = dict[str, str]

Question = list[Message] | str
"""A conversation; raw text if the target has no chat template."""


def check(options: argparse.Namespace) -> int:
    """Print the report; the exit status is 0 if speculation is lossless here, 1 if not."""
    if options.json and not options.kernels:
        raise BadOptionError("--json is a form of --kernels: give both")
    output = Output()

    def show(*lines: str) -> None:
        output.text("".join(f"{line}\n" for line in lines))

    machine = _machine(prepare())
    if not options.json:
        show(*machine)
        show(*(_row(label, text) for label, text in check_lines(options.settings.power.source)))
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
    )
    if options.kernels:
        outcomes, kept = _kernel_outcomes(pair, options.kv_bits)
        if options.json:
            drafter = pair.draft or pair.head
            names = pair.target.name, None if drafter is None else drafter.name
            show(json.dumps(report(outcomes, kept, *names), indent=1, default=str))
        else:
            show(*_pair(pair), *_kernel_table(outcomes, kept))
        return 0
    show(*_pair(pair))
    with shown_check() as showing:
        kernels = kernels_for(pair, report=showing, kv_bits=options.kv_bits, rest=True)
    show(_row("kernels", kernels.state), *(_row("notice", it) for it in kernels.notices))
    session = Session(pair, kv_bits=options.kv_bits, kernels=kernels)
    if (rollback := session.decoder.target.cache.rollback_by) is not None:
        show(_row("rollback", rollback))
    every = prompts()
    conversations = every[:: max(len(every) // options.prompts, 1)][: options.prompts]
    count = len(conversations)
    show(
        f"self-check: {count} prompt{'s' * (count > 1)}, up to {options.max_tokens} tokens, "
        f"depth {DEPTH}; greedy, and keyed at temperature 0.8"
    )
    replies: list[CheckedReply] = []
    with interruptible(), awake(options.settings.power.keep_awake):
        most, kv_bits = options.max_tokens, options.kv_bits
        for reply in self_check(session, conversations, max_tokens=most, kv_bits=kv_bits):
            replies.append(reply)
            show(_compared(reply))
        show(*_head(session))
    show(_verdict(replies))
    passed = all(reply.lossless for reply in replies)
    draft = None if pair.draft is None else pair.draft.name
    remember_check(pair.target.name, draft, pair.plan.weights, passed=passed)
    return 0 if passed else 1


@dataclass(frozen=True, slots=True)
class CheckedReply:
    """A reply with speculation beside the one without."""

    prompt: int
    drafter: str
    sampling: str
    """greedy or keyed."""
    tokens: int
    acceptance: float | None
    fork: Divergence | None

    @property
    def lossless(self) -> bool:
        """Whether the replies are equal except for rounding."""
        return self.fork is None or self.fork.near_tie


def self_check(
    session: Session,
    conversations: list[list[Message]],
    *,
    max_tokens: int,
    kv_bits: int | None = None,
) -> Iterator[CheckedReply]:
    """Reply to every conversation without speculation and with each drafter, greedy and keyed.

    A conversation ends with a user's turn; ``kv_bits`` is as for ``Session``.
    """
    pair = session.pair
    drafters = (*(it for it in MODELS if it in session.decoder.portfolio), "ngram")
    template = Template(pair)
    for number, messages in enumerate(conversations, 1):
        question: Question = messages
        if pair.target.tokenizer.has_chat_template:
            prompt = template.tokens(messages)
        else:
            question = messages[-1]["content"]
            prompt = template.raw(question)
        for name, sampling in (("greedy", GREEDY), ("keyed", KEYED)):
            session.rule = "keyed"
            plain, _ = _reply(session, question, sampling, "off", max_tokens)
            for drafter in drafters:
                ids, acceptance = _reply(session, question, sampling, drafter, max_tokens)
                position = first_difference(plain, ids)
                fork = None
                if position is not None:
                    # A model of its own judges, with MLX's kernels and an empty cache.
                    target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
                    scored = choice_scores(target, [*prompt, *plain[:position]], sampling)
                    fork = explain(position, plain, ids, *scored)
                yield CheckedReply(number, drafter, name, len(ids), acceptance, fork)


def _reply(
    session: Session, question: Question, sampling: Sampling, method: str, max_tokens: int
) -> tuple[tuple[int, ...], float | None]:
    session.method = method
    session.depth = 0 if method == "off" else DEPTH
    raw = isinstance(question, str)
    for _ in session.reply(question, sampling, max_tokens=max_tokens, raw=raw):
        pass
    if session.finished is None:
        raise RuntimeError("the reply did not finish")
    return session.finished.token_ids, session.finished.stats.acceptance


def _row(label: str, *values: str) -> str:
    return "  ".join([f"  {label:<10}", *map(one_line, values)])


def _machine(compile_off: str | None) -> Iterator[str]:
    """``compile_off`` is why mx.compile is switched off."""
    yield f"macspec {version('macspec')}"
    yield _row("chip", str(mx.device_info().get("device_name") or platform.machine()))
    yield _row("memory", _size(unified_memory()))
    yield _row("system", f"{platform.platform()}, Python {platform.python_version()}")
    yield _row("MLX", f"{version('mlx')}, mlx-lm {version('mlx-lm')}")
    yield _row("backend", backend())
    yield _row("mx.compile", "works" if compile_off is None else f"off: {compile_off}")


def _pair(pair: Pair) -> Iterator[str]:
    yield "pair"
    yield _row("target", _described(pair.target))
    yield _row("draft", "none" if pair.draft is None else _described(pair.draft))
    if pair.head is not None:
        yield _row("head", _described(pair.head))
    if pair.draft_off is not None:
        yield _row("draft off", pair.draft_off)
    unknown = 0 if pair.translation is None else pair.translation.unknown
    known = f", the draft model knows all but {unknown} of them" if unknown else ""
    yield _row("vocabulary", f"{pair.vocabulary} ids{known}")
    yield _row("context", f"{pair.context} positions")
    yield _row("memory", str(pair.plan))
    yield from (_row("notice", notice) for notice in pair.notices)


def _compared(reply: CheckedReply) -> str:
    ratio = "" if reply.acceptance is None else f"acceptance {reply.acceptance:.2f}"
    outcome = "equal" if reply.fork is None else _explained(reply.fork)
    cells = f"{reply.tokens:>4} tokens  {ratio:<15}  {outcome}"
    return f"  prompt {reply.prompt:<3}  {reply.sampling:<6}  {reply.drafter:<6}  {cells}"


def _verdict(replies: list[CheckedReply]) -> str:
    equal = sum(reply.fork is None for reply in replies)
    ties = sum(reply.lossless for reply in replies) - equal
    different = len(replies) - equal - ties
    parts = [f"{equal} of {len(replies)} replies equal"]
    if ties:
        parts.append(f"{ties} differ at a near tie")
    if different:
        parts.append(f"{different} DIFFER")
    return f"{'FAILED' if different else 'passed'}: {', '.join(parts)}"


def _kernel_outcomes(
    pair: Pair, kv_bits: int | None
) -> tuple[dict[Variant, Outcome | None], tuple[str, ...]]:
    """Of every kernel variant, checked now if it was not before; and what MLX's kernels keep.

    Without Metal nothing is checked.
    """
    if not on_metal():
        found, asked = variants_for(pair, kv_bits=kv_bits)
        return dict.fromkeys(asked), tuple(found.unsupported)
    with shown_check() as show:
        chosen = checked_kernels(pair, kv_bits=kv_bits, report=show)
    unchecked = dict.fromkeys(variants_for(pair, kv_bits=kv_bits)[1])
    return {**unchecked, **chosen.outcomes}, chosen.unsupported


def _kernel_table(outcomes: Mapping[Variant, Outcome | None], kept: Sequence[str]) -> Iterator[str]:
    """Lines with the outcome of each kernel variant's self-check, and its speed beside MLX's."""
    rows = []
    for variant, outcome in outcomes.items():
        count = f"{variant.rows} row{'s' * (variant.rows > 1)}"
        checked, speed = DASH, DASH
        if outcome is not None:
            checked = "passed" if outcome.failure is None else f"FAILED: {outcome.failure}"
            speed = DASH if outcome.speed is None else f"{outcome.speed:.2f}x"
        rows.append((variant.kernel, f"{variant.shape}, {count}", checked, speed))
    heads = ("kernel", "variant", "self-check", "speed")
    yield from Table("", heads, rows, left=None, indent=0).text().splitlines()
    for line in kept:
        yield f"MLX's own: {line}"
    if not on_metal():
        yield f"{DASH}: Metal is not available here, so kernels are neither checked nor used"


def _described(model: Model | LoadedHead) -> str:
    kind = f"context {model.context}" if isinstance(model, Model) else label(model.kind)
    parameters = f"{model.parameters / 1e6:,.1f}M parameters"
    return f"{model.name}: {parameters}, {_size(model.weight_bytes)}, {kind}"


def _head(session: Session) -> Iterator[str]:
    """How well the head reads the target, on the newest text of a session, and what it costs."""
    head, decoder = session.pair.head, session.decoder
    if head is None:
        return
    if head.kind not in decoder.portfolio:
        yield _row("head off", decoder.draft_off or "")
        return
    text = decoder.tokens
    for _ in session.measure():
        pass
    target = CachedModel(session.pair.target.module, session.pair.vocabulary)
    hidden = target.show(head.module.wanted)
    target.read(text)
    found: Comparison | Agreement
    if head.kind in BLOCKS:
        found = Comparison(head.module, hidden, text)
    else:
        found = Agreement(head.module, hidden, text, target.cache.layers)
    step = decoder.controller.curve.step(head.kind)
    what = "a block" if head.kind in BLOCKS else "a token drafted"
    yield _row(
        label(head.kind),
        f"chooses the target's token in {found.share():.0%} of {found.count} places; {what} costs "
        f"{step:.2f} plain passes",
    )
    for it in decoder.portfolio.models(head.kind):
        if (notice := it.stepper.notice(text)) is not None:
            yield _row("notice", notice)


def _explained(fork: Divergence) -> str:
    if fork.margin is None:
        return f"NOT EQUAL: one reply ends at token {fork.position}"
    kind = "near tie" if fork.near_tie else "NOT EQUAL"
    sign = "<=" if fork.near_tie else ">"
    return (
        f"{kind} at token {fork.position}: {fork.plain} without and {fork.speculative} with "
        f"speculation, gap {fork.margin:.4g} {sign} {fork.tolerance:.4g}"
    )


def _size(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
