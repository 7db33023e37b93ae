"""The panel's numbers and a comparison in sentences, for line mode."""

from __future__ import annotations

from collections.abc import Iterator

from macspec.models.machine import GIB
from macspec.plaintext import one_line

from .chat.comparison import Comparison, ModeStats, TextDivergence
from .panel.panelstate import PanelState


def sentences(state: PanelState) -> Iterator[str]:
    """The numbers that were measured, a sentence each."""
    yield from _speed(state)
    yield from _speculation(state)
    yield from _room(state)
    yield from _energy(state)
    if state.kernels:
        yield f"Kernels: {one_line(state.kernels)}."
    tested = one_line(state.self_check)
    yield f"Self-test: {tested}." if tested else "Self-test: not run yet (macspec check)."


def _speed(state: PanelState) -> Iterator[str]:
    if not state.tokens:
        yield "No reply in this session yet."
        return
    parts = [f"{state.tokens} tokens in {state.passes} passes"]
    if state.tokens_per_s_reply is not None:
        plain = state.plain_tokens_per_s
        against = "" if plain is None else f" (plain decoding: about {plain:.1f})"
        parts.append(f"{state.tokens_per_s_reply:.1f} tokens per second{against}")
    yield f"Reply: {', '.join(parts)}."
    times = _measured(
        ("the first token after {:.2f} s", state.ttft_s),
        ("{:.1f} ms between tokens", state.itl_ms_median),
        ("{:.1f} ms at the 95th percentile", state.itl_ms_p95),
    )
    if times:
        yield f"Times: {times}."


def _speculation(state: PanelState) -> Iterator[str]:
    names = [name for name in (state.target, state.draft) if name]
    if names:
        yield f"Pair: {one_line(' with '.join(names))}."
    if state.draft_off:
        yield f"No draft model: {one_line(state.draft_off)}."
    shares = ", ".join(f"{share:.0%}" for share in state.acceptance_by_position)
    shown = _measured(
        ("{:.0%} of the drafted tokens accepted", state.acceptance),
        ("by position {}", shares or None),
        ("{:.2f} tokens per pass", state.tokens_per_pass),
    )
    if shown:
        yield f"Speculation: {shown}."
    yield (
        f"Set: depth {state.depth}, method {state.method}, rule {state.rule}, "
        f"temperature {state.temperature:g}."
    )
    if state.round_depth is not None:
        drafter = f"drafter {one_line(state.drafter)}" if state.drafter else "no drafter"
        yield f"Last round: {drafter}, depth {state.round_depth}."
    if state.why:
        yield f"Why: {one_line(state.why)}."


def _room(state: PanelState) -> Iterator[str]:
    if state.context_used is not None and state.context_limit is not None:
        yield f"Context: {state.context_used} of {state.context_limit} tokens."
    if state.memory_used is not None and state.memory_limit is not None:
        used, limit = state.memory_used / GIB, state.memory_limit / GIB
        plan = "" if state.memory_plan is None else f"; planned {state.memory_plan / GIB:.2f} GB"
        yield f"Memory: {used:.2f} of {limit:.1f} GB{plan}."


def _energy(state: PanelState) -> Iterator[str]:
    if state.watts:
        rails = ", ".join(f"{one_line(name)} {watts:.1f} W" for name, watts in state.watts.items())
        yield f"Power ({one_line(state.energy_source)}): {rails}."
    elif state.energy_reason:
        yield f"Power: not measured; {one_line(state.energy_reason)}."
    joules = _measured(
        ("{:.3g} J per token gross", state.joules_per_token),
        ("{:.3g} J per token net of idle", state.net_joules_per_token),
        ("{:.3g} J per token plain", state.plain_joules_per_token),
    )
    if joules:
        yield f"Energy: {joules}."


def _measured(*parts: tuple[str, float | str | None]) -> str:
    """What there is of some values, each with its format."""
    return ", ".join(form.format(value) for form, value in parts if value is not None)


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
