"""A comparison of plain and speculative decoding in sentences, for line mode."""

from __future__ import annotations

from collections.abc import Iterator

from macspec.plaintext import one_line

from .chat.comparison import Comparison, ModeStats, TextDivergence


def comparison_sentences(found: Comparison) -> Iterator[str]:
    """What it has found, the outcome first."""
    plain, mine = found.plain.tokens_per_s, found.speculative.tokens_per_s
    if plain and mine:
        yield f"Speculative decoding is {mine / plain:.2f} times as fast as plain decoding."
    yield _way("Plain", found.plain)
    yield _way("Speculative", found.speculative)
    if found.energy_reason:
        yield f"Energy: not measured; {one_line(found.energy_reason)}."
    if found.fork is not None:
        yield from _fork(found.fork)
    elif found.equal:
        yield f"The text is the same ({one_line(found.rule)})."
    elif found.equal is None:
        rule = one_line(found.rule)
        yield f"The {rule} rule promises the same distribution, not the same text."
    else:
        yield "The text is not the same."
    yield from (one_line(note) for note in found.notes)


def _way(name: str, way: ModeStats) -> str:
    said = [
        (way.tokens_per_s, "{:.1f} tokens per second"),
        (way.tokens_per_pass, "{:.2f} tokens per pass"),
        (way.acceptance, "{:.0%} accepted"),
        (way.ttft_s, "the first token after {:.2f} s"),
        (way.joules_per_token, "{:.3g} J per token"),
    ]
    parts = [form.format(value) for value, form in said if value is not None]
    return f"{name}: {', '.join(parts) or 'no reply'}."


def _fork(fork: TextDivergence) -> Iterator[str]:
    why = "where two tokens nearly tie" if fork.near_tie else "which should not be"
    gap = "" if fork.gap is None else f", their scores {fork.gap:.3g} apart"
    yield f"The texts part at token {fork.token}, {why}{gap}."
    yield f"Plain goes on: {one_line(fork.plain[:200])}"
    yield f"Speculative goes on: {one_line(fork.speculative[:200])}"
