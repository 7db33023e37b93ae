"""The statistics of a reply as a small table."""

from __future__ import annotations

from dataclasses import replace

from ..events import Finished
from ..power import ReplyEnergy
from ..stats import ReplyStats

DASH = "-"

ENDS = {
    "end": "the model",
    "stop": "a stop text",
    "length": "--max-tokens",
    "context": "the end of the context",
    "interrupted": "an interrupt",
}


def statistics_table(finished: Finished, energy: ReplyEnergy | None = None) -> str:
    """Aligned lines of label and value; a dash where there is nothing to count.

    Args:
        energy: what the reply took, if that is to be said.
    """
    stats = finished.stats
    if energy is not None and energy.jumped:
        stats = replace(stats, itl_ms_median=None, itl_ms_p95=None)
    share = f"{stats.accepted} of {stats.drafted} drafted" if stats.drafted else ""
    cached = f"{stats.cached_tokens} of {stats.prompt_tokens} prompt tokens were cached"
    rows = [
        ("acceptance", _number(stats.acceptance, "{:.3f}"), share),
        ("  by position", " ".join(f"{a:.2f}" for a in stats.acceptance_by_position) or DASH, ""),
        ("tokens per pass", _number(stats.tokens_per_pass, "{:.2f}"), f"{stats.passes} passes"),
        ("time to first token", _number(stats.ttft_s, "{:.3f} s"), ""),
        ("inter-token latency", _number(stats.itl_ms_median, "{:.1f} ms"), "median"),
        ("", _number(stats.itl_ms_p95, "{:.1f} ms"), "95th percentile"),
        ("decode", _number(stats.decode_tokens_per_s, "{:.1f} tok/s"), ""),
        ("speed-up over plain", _number(stats.measured_speedup, "{:.2f}x"), _predicted(stats)),
        ("prefill", _number(stats.prefill_tokens_per_s, "{:.1f} tok/s"), cached),
        ("tokens", str(stats.tokens), f"ended by {ENDS.get(finished.reason, finished.reason)}"),
        ("seconds", f"{stats.seconds.wall:.3f}", f"device idle {stats.seconds.device_idle:.3f}"),
        *([] if energy is None else [("energy", *_energy(energy))]),
        ("acceptance rule", finished.accept_rule, ""),
        ("method", finished.method, f"depth {finished.depth}"),
        ("seed", str(finished.seed), ""),
    ]
    width = max(len(value) for _, value, _ in rows)
    lines = (f"{label:<21}{value:<{width}}  {note}" for label, value, note in rows)
    return "\n".join(line.rstrip() for line in lines)


def _energy(energy: ReplyEnergy) -> tuple[str, str]:
    """Joules per token of the decode, and what they are of, or why there are none."""
    decode = energy.decode
    gross, net = decode.joules_per_token, decode.net_joules_per_token
    if gross is None or decode.watts is None:
        return DASH, decode.reason or "no token was decoded"
    above = "no idle baseline is known" if net is None else f"{net:.3g} J above idle"
    return f"{gross:.3g} J/token", f"{decode.watts:.1f} W of {decode.of}, {decode.basis}; {above}"


def _predicted(stats: ReplyStats) -> str:
    return "" if stats.predicted_speedup is None else f"predicted {stats.predicted_speedup:.2f}x"


def _number(value: float | None, form: str) -> str:
    return DASH if value is None else form.format(value)
