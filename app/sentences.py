"""A comparison in sentences, for line mode."""

from __future__ import annotations

from collections.abc import Iterator

from macspec.plaintext import one_line

from .chat.comparison import Comparison, ModeStats, TextDivergence


def comparison_sentences(found: Comparison) -> Iterator[str]:
    """The results of a comparison, the outcome first."""
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
        yield f"The {rule} rule guarantees the same distribution, not the same text."
    else:
        yield "The texts differ."
    yield from (one_line(note) for note in found.notes)


def _way(name: str, way: ModeStats) -> str:
    numbers = _measured(
        ("{:.1f} tokens per second", way.tokens_per_s),
        ("{:.2f} tokens per pass", way.tokens_per_pass),
        ("{:.0%} accepted", way.acceptance),
        ("the first token after {:.2f} s", way.ttft_s),
        ("{:.3g} J per token", way.joules_per_token),
    )
    return f"{name}: {numbers or 'no reply'}."


def _fork(fork: TextDivergence) -> Iterator[str]:
    why = "where two tokens nearly tie" if fork.near_tie else "which should not happen"
    gap = "" if fork.gap is None else f", their scores {fork.gap:.3g} apart"
    yield f"The texts diverge at token {fork.token}, {why}{gap}."
    yield f"Plain continues: {one_line(fork.plain[:200])}"
    yield f"Speculative continues: {one_line(fork.speculative[:200])}"


def _measured(*parts: tuple[str, float | str | None]) -> str:
    """What there is of some values, each with its format."""
    return ", ".join(form.format(value) for form, value in parts if value is not None)
