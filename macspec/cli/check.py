"""``macspec check``: the machine, the pair, and whether speculation is lossless with them."""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import version

import mlx.core as mx

from ..assets import prompts
from ..cache import ModelCache
from ..checked import remember_check
from ..device import on_metal, prepare
from ..forks import Fork
from ..kernels import Kernels
from ..metal.dispatch import kernels_for
from ..models import Model, Pair, load_pair, memory
from ..models.memory import estimate_memory
from ..plaintext import one_line
from ..power import awake
from ..power.report import check_lines
from ..terminal import Output, interruptible
from .kernels import kernel_table
from .selftest import DEPTH, Trial, self_test


def check(options: argparse.Namespace) -> int:
    """Print the report; the exit status is 0 if speculation proved lossless, 1 if not."""
    report = _Report()
    report.machine(prepare())
    for label, text in check_lines(options.settings.power.source):
        report.row(label, text)
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
    )
    report.pair(pair, options.kv_bits)
    if options.kernels:
        for line in kernel_table(pair):
            report.line(line)
        return 0
    kernels = kernels_for(pair)
    report.kernels(kernels)
    every = prompts()
    conversations = every[:: max(len(every) // options.prompts, 1)][: options.prompts]
    report.line(
        f"self-test: {len(conversations)} prompts, up to {options.max_tokens} tokens, "
        f"depth {DEPTH}; greedy, and keyed at temperature 0.8"
    )
    trials: list[Trial] = []
    with interruptible(), awake(options.settings.power.keep_awake):
        for trial in self_test(
            pair,
            conversations,
            max_tokens=options.max_tokens,
            kv_bits=options.kv_bits,
            kernels=kernels,
        ):
            trials.append(trial)
            report.trial(trial)
    report.verdict(trials)
    passed = all(trial.lossless for trial in trials)
    draft = None if pair.draft is None else pair.draft.name
    remember_check(pair.target.name, draft, pair.plan.weights, passed=passed)
    return 0 if passed else 1


class _Report:
    """What was found, to standard output as it is found."""

    def __init__(self) -> None:
        self._output = Output()

    def line(self, text: str) -> None:
        self._output.text(f"{text}\n")

    def row(self, label: str, *values: str) -> None:
        self._output.text("  ".join([f"  {label:<10}", *map(one_line, values)]) + "\n")

    def machine(self, compile_off: str | None) -> None:
        """Print what computes; ``compile_off`` is why mx.compile is switched off."""
        info = mx.device_info()
        self.line(f"macspec {version('macspec')}")
        self.row("chip", str(info.get("device_name") or platform.machine()))
        self.row("memory", _size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
        self.row("system", f"{platform.platform()}, Python {platform.python_version()}")
        self.row("MLX", f"{version('mlx')}, mlx-lm {version('mlx-lm')}")
        self.row("backend", "Metal" if on_metal() else "CPU")
        self.row("mx.compile", "works" if compile_off is None else f"off: {compile_off}")

    def pair(self, pair: Pair, kv_bits: int | None) -> None:
        """Print the models, the gates that spoke, and the memory plan."""
        self.line("pair")
        self.row("target", _described(pair.target))
        self.row("draft", "none" if pair.draft is None else _described(pair.draft))
        if pair.draft_off is not None:
            self.row("draft off", pair.draft_off)
        self.row("vocabulary", f"{pair.vocabulary} ids")
        self.row("context", f"{pair.context} positions")
        self.row("memory", str(_memory_plan(pair, kv_bits)))
        for notice in (*pair.notices, ModelCache(pair.target.module).reason):
            if notice is not None:
                self.row("notice", notice)

    def kernels(self, kernels: Kernels) -> None:
        """Print whose kernels compute, and which of macspec's do not and why."""
        self.row("kernels", kernels.state)
        for notice in kernels.notices:
            self.row("notice", notice)

    def trial(self, trial: Trial) -> None:
        """Print one line of the self-test."""
        ratio = "" if trial.acceptance is None else f"acceptance {trial.acceptance:.2f}"
        outcome = "equal" if trial.fork is None else _explained(trial.fork)
        cells = f"{trial.tokens:>4} tokens  {ratio:<15}  {outcome}"
        self.line(f"  prompt {trial.prompt:<3}  {trial.drawing:<6}  {trial.drafter:<5}  {cells}")

    def verdict(self, trials: list[Trial]) -> None:
        """Print the outcome in a line."""
        equal = sum(trial.fork is None for trial in trials)
        ties = sum(trial.lossless for trial in trials) - equal
        parts = [f"{equal} of {len(trials)} replies equal"]
        if ties:
            parts.append(f"{ties} part at a near tie")
        if equal + ties < len(trials):
            parts.append(f"{len(trials) - equal - ties} DIFFER")
        passed = equal + ties == len(trials)
        self.line(f"{'passed' if passed else 'FAILED'}: {', '.join(parts)}")


def _memory_plan(pair: Pair, kv_bits: int | None) -> memory.MemoryPlan:
    target, draft = (
        None if model is None else estimate_memory(model.module, model.context)
        for model in (pair.target, pair.draft)
    )
    assert target is not None
    return memory.plan(target, draft, pair.context, kv_bits, memory.device_limit())


def _described(model: Model) -> str:
    return (
        f"{model.name}: {model.parameters / 1e6:,.1f}M parameters, "
        f"{_size(model.weight_bytes)}, context {model.context}"
    )


def _explained(fork: Fork) -> str:
    if fork.gap is None:
        return f"NOT EQUAL: one reply ends at token {fork.position}"
    kind = "near tie" if fork.near_tie else "NOT EQUAL"
    sign = "<=" if fork.near_tie else ">"
    return (
        f"{kind} at token {fork.position}: {fork.plain} without and {fork.speculative} with "
        f"speculation, gap {fork.gap:.4g} {sign} {fork.epsilon:.4g}"
    )


def _size(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
