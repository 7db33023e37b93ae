"""The lines around a turn's text: who speaks, in what state, and the numbers of a reply."""

from __future__ import annotations

from macspec.plaintext import one_line

from ..chat.turns import Turn, TurnStats

DASH = "–"

REASONS = {
    "length": "ended at the length limit",
    "context": "ended because the context is full",
}

DROPPED = "out of context"
BORDER = "the model no longer sees what is above: its context is full"


def speaker(turn: Turn) -> str:
    """Who wrote the turn."""
    if turn.role == "user":
        return "You"
    if turn.role == "raw":
        return "Continued text"
    return model_name(turn.model or "macspec")


def model_name(name: str) -> str:
    """A model without whose it is or where it lies."""
    return one_line(name).rstrip("/").rpartition("/")[2]


def marks(turn: Turn) -> list[str]:
    """What is particular about a turn, for its first line."""
    found = []
    if turn.siblings > 1:
        found.append(f"‹ {turn.sibling}/{turn.siblings} ›")
    if turn.dropped:
        found.append(DROPPED)
    return found


def ending(turn: Turn) -> str | None:
    """How a reply ended, if not by itself."""
    if turn.state == "stopped":
        return "■ stopped"
    if turn.state == "cut off":
        return "✗ cut off before its end"
    if turn.state == "complete" and turn.reason in REASONS:
        return f"■ {REASONS[turn.reason]}"
    return None


def figures(stats: TurnStats) -> list[str]:
    """The numbers under a reply; what was not measured is a dash."""

    def shown(value: float | None, form: str) -> str:
        return DASH if value is None else format(value, form)

    energy = f"{shown(stats.joules_per_token, '.2f')} J/token"
    if stats.joules_per_token is None and stats.energy_basis:
        energy += f" ({one_line(stats.energy_basis)})"
    seconds = DASH if stats.ttft_s is None else f"{stats.ttft_s:.2f} s"
    tokens = f"{stats.tokens:,} token" + "s" * (stats.tokens != 1)
    if stats.parts > 1:
        tokens += f" in {stats.parts} parts" if stats.whole else " in the last part"
    return [
        tokens,
        f"{shown(stats.tokens_per_s, '.1f')} tok/s",
        f"{shown(stats.acceptance, '.0%')} accepted",
        f"{shown(stats.tokens_per_pass, '.2f')} tokens/pass",
        f"TTFT {seconds}",
        energy,
    ]
