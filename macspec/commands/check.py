"""``macspec check``: the machine, the pair, and whether speculation is lossless with them."""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import version

import mlx.core as mx

from ..assets import prompts
from ..device import on_metal, prepare
from ..models import Model, Pair, load_pair
from ..plaintext import one_line
from .interrupt import interruptible
from .output import Output
from .selftest import DEPTH, Fork, Trial, self_test


def check(options: argparse.Namespace) -> int:
    """Print the report; the exit status is 0 if speculation proved lossless, 1 if not."""
    report = _Report()
    report.machine(prepare())
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
    )
    report.pair(pair)
    conversations = prompts()[: options.prompts]
    report.heading(
        f"self-test: {len(conversations)} prompts, up to {options.max_tokens} tokens, "
        f"depth {DEPTH}; greedy, and keyed at temperature 0.8"
    )
    trials: list[Trial] = []
    with interruptible():
        for trial in self_test(
            pair, conversations, max_tokens=options.max_tokens, kv_bits=options.kv_bits
        ):
            trials.append(trial)
            report.trial(trial)
    report.verdict(trials)
    return 0 if all(trial.lossless for trial in trials) else 1


class _Report:
    """What was found, to standard output as it is found."""

    def __init__(self) -> None:
        self._output = Output()

    def heading(self, text: str) -> None:
        self._output.text(f"{one_line(text)}\n")

    def row(self, label: str, value: str) -> None:
        self._output.text(f"  {label:<12}{one_line(value)}\n")

    def machine(self, compile_off: str | None) -> None:
        """Print what computes; ``compile_off`` is why mx.compile is switched off."""
        info = mx.device_info()
        self.heading(f"macspec {version('macspec')}")
        self.row("chip", str(info.get("device_name") or platform.machine()))
        self.row("memory", _size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
        self.row("system", f"{platform.platform()}, Python {platform.python_version()}")
        self.row("MLX", f"{version('mlx')}, mlx-lm {version('mlx-lm')}")
        self.row("backend", "Metal" if on_metal() else "CPU")
        self.row("mx.compile", "works" if compile_off is None else f"off: {compile_off}")

    def pair(self, pair: Pair) -> None:
        """Print the models, the gates that spoke, and the memory in use."""
        self.heading("pair")
        self.row("target", _described(pair.target))
        self.row("draft", "none" if pair.draft is None else _described(pair.draft))
        if pair.draft_off is not None:
            self.row("draft off", pair.draft_off)
        self.row("vocabulary", f"{pair.vocabulary} ids")
        self.row("context", f"{pair.context} positions")
        self.row("memory", f"{_size(mx.get_active_memory())} with both models loaded")
        for notice in pair.notices:
            self.row("notice", notice)

    def trial(self, trial: Trial) -> None:
        """Print one line of the self-test."""
        ratio = "" if trial.acceptance is None else f"acceptance {trial.acceptance:.2f}, "
        self.row(
            f"prompt {trial.prompt}",
            f"{trial.drawing:<6}  {trial.drafter:<5}  {trial.tokens} tokens, {ratio}"
            + ("equal" if trial.fork is None else _explained(trial.fork)),
        )

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
        self.heading(f"{'passed' if passed else 'FAILED'}: {', '.join(parts)}")


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
