"""The live panel as one table: its rows from top to bottom, and all that is made from them.

Everything here is a pure function of a ``PanelState`` and of the room there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter

from macspec.models.sidecars import label
from macspec.plaintext import one_line

from ..widgets.lines import BLANK, Line, cells, fit
from . import draw
from .charts import bar
from .figures import DASH, fixed, gigabytes, milliseconds, number, percent, seconds, whole
from .panelstate import PanelState


@dataclass(frozen=True, slots=True)
class Row:
    """One reading of the panel, on one line or several."""

    label: str
    """As the help names it."""
    draw: Callable[[PanelState, int, int], list[Line]]
    """From a state, a width and a number of lines to that many lines."""
    ranks: tuple[int, ...]
    """How soon each of its lines gives way where there is no room: 8 first."""
    help: str = ""
    """What it means; empty: the help of the row below holds for both."""
    values: Callable[[PanelState], Sequence[str]] = lambda state: ()
    """In words, one for each name in the label; empty or a dash: unknown."""
    cut: bool = False
    """Whether a line may cut the values, so that the tooltip shows them whole."""
    absent: Callable[[PanelState], bool] = lambda state: False
    """Whether it is left out, as nothing here measures it."""


def _activity(state: PanelState) -> str:
    tokens = f"{state.tokens} token{'s' * (state.tokens != 1)}"
    return f"{state.activity}, {tokens} in {state.passes} pass{'es' * (state.passes != 1)}"


def _round(state: PanelState) -> tuple[str]:
    if not state.passes:
        return ("",)
    depth = fixed(state.round_depth, 2).strip()
    return ("not drafting" if state.drafter is None else f"{state.drafter}, depth {depth}",)


def _newest(state: PanelState) -> str:
    return f"{state.round_accepted} of {state.round_drafted}" if state.round_drafted else ""


def _times(state: PanelState) -> str:
    times, plain = draw.against_plain(state), fixed(state.plain_tokens_per_s, 6, 1).strip()
    if times is None:
        return "plain" if state.passes and not draw.drafted(state) else ""
    at = "" if plain == DASH else f" (plain: {plain} tok/s)"
    return f"{fixed(times, 5, 2).strip()}{at}"


def _session(state: PanelState) -> str:
    speed, times = fixed(state.session_tokens_per_s, 6, 1).strip(), state.session_speedup
    if times is None or state.session_tokens < draw.ENOUGH:
        return speed
    return f"{speed} ({fixed(times, 5, 2).strip()} × plain)"


def _memory(state: PanelState) -> str:
    used = _of(gigabytes(state.memory_used), gigabytes(state.memory_limit), "GB")
    plan = gigabytes(state.memory_plan).strip()
    return used if plan == DASH else f"{used} ({plan} at full context)"


def _watts(state: PanelState) -> str:
    source = f" ({state.energy_source})" if state.watts else ""
    return f"{_measured(state, state.watts)}{source}"


def _exactness(state: PanelState) -> str:
    same, _ = draw.promise(state.rule, number(state.temperature) or 0.0)
    return f"{same}; rule {state.rule}, temperature {fixed(state.temperature, 5, 2).strip()}"


def _of(used: str, most: str, unit: str) -> str:
    return "" if most.strip() == DASH else f"{used.strip()} of {most.strip()} {unit}"


def _measured(state: PanelState, values: Mapping[str, float | None]) -> str:
    """What there is of some readings, or why there is none."""
    found = [f"{name} {fixed(value, 6, 2).strip()}" for name, value in values.items() if value]
    return ", ".join(found) or state.energy_reason


GAP = Row("", lambda state, width, rows: [BLANK], (8,))

ROWS: tuple[Row, ...] = (
    Row(
        "activity", draw.activity, (0,),
        "What the engine is doing: loading, ready, reading the prompt, writing, or keeping you "
        "waiting; then the number of tokens in this reply.",
        lambda state: (_activity(state),),
    ),
    Row(
        "target, draft, rollback", draw.pair, (5, 5),
        "The model whose output you get, and the small one that drafts for it; of a model with a "
        "running state also how rejected tokens are taken back: pending (with the next pass, at no "
        "cost), recorded (only the recurrence runs again), replayed (whole layers do), or off.",
        lambda state: (
            state.target or "",
            state.draft or (state.head and label(state.head)) or state.draft_off or "",
            state.rollback or "",
        ), cut=True,
    ),
    GAP,
    Row(
        "× plain", draw.speed_head, (0,),
        "This reply's speed over plain decoding: the same model without speculation, timed in "
        "plain rounds of this session at about this context. Shown from 64 tokens on; plain: "
        "nothing was drafted.",
        lambda state: (_times(state),),
    ),
    Row(
        "tok/s, this reply, session, first token", draw.speed, (0, 3, 3),
        "Tokens per second: in the last second, over this reply, and over all replies since the "
        "pair was loaded. First token: how long reading the prompt took.",
        lambda state: (
            fixed(draw.current_speed(state), 6, 1), fixed(state.tokens_per_s_reply, 6, 1),
            _session(state), seconds(state.ttft_s),
        ),
    ),
    Row(
        "why", draw.why, (1, 2),
        "Why the latest round drafted as it did, or did not draft at all. A round drafts some "
        "tokens and checks them in one pass of the target; × plain is the gain to expect.",
        lambda state: (state.why,), cut=True,
    ),
    Row(
        "history", draw.history, (0, 2, 7),
        "Decoding speed, one column per half second, newest on the right. The colour changes "
        "above the speed of plain decoding.",
    ),
    Row("▴", draw.changes, (1,), "Where you changed a setting, and which one."),
    Row(
        "per token, slowest 5%", draw.latency, (3,),
        "The usual time from one token to the next, and what the slowest 5% of tokens exceed.",
        lambda state: (milliseconds(state.itl_ms_median), milliseconds(state.itl_ms_p95)),
    ),
    GAP,
    Row(
        "Drafting", draw.speculation_head, (0,),
        "Who drafts now and how far ahead: draft is the draft model; mtp, eagle, dflash and dspark "
        "are heads; ngram and suffix copy from text that repeats. Depth is the number of tokens.",
        _round,
    ),
    Row(
        "round", draw.newest_round, (1,),
        "The latest round: ● a drafted token that the target accepted, ○ one that it rejected.",
        lambda state: (_newest(state),),
    ),
    Row(
        "accepted, now", draw.acceptance, (0, 2),
        "The share of drafted tokens that the target accepted, over this reply and over its last "
        "rounds.",
        lambda state: (percent(state.acceptance), percent(state.acceptance_now)),
    ),
    Row(
        "1st 2nd …", draw.positions, (2, 3, 6, 7),
        "How often the first drafted token of a round was accepted, the second, and so on.",
        lambda state: (", ".join(percent(it).strip() for it in state.acceptance_by_position),),
    ),
    Row(
        "tokens/pass", draw.passes, (0,),
        "Tokens that a pass of the target yields: the accepted ones and its own. Plain decoding "
        "gives 1.00.",
        lambda state: (fixed(state.tokens_per_pass, 6, 2),),
    ),
    Row(
        "method, depth", draw.chosen, (7,),
        "Your settings; auto leaves the choice to the engine.",
        lambda state: (state.method, str(state.depth)),
    ),
    GAP,
    Row("", draw.capacity_head, (4,)),
    Row(
        "context", draw.context, (0,),
        "Tokens of this conversation in the model's context, and how many fit.",
        lambda state: (_of(whole(state.context_used, 9), whole(state.context_limit, 9), "tokens"),),
    ),
    Row(
        "memory", draw.memory, (1, 6),
        "Memory the engine is using, out of what this machine allows; ┃ marks what the pair "
        "needs with a full context.",
        lambda state: (_memory(state),),
    ),
    GAP,
    Row("", draw.energy_head, (4,), absent=draw.unpowered),
    Row(
        "W", draw.power, (1, 6),
        "Power drawn by each part of the chip, including other programs; all is the whole "
        "machine.",
        lambda state: (_watts(state),), cut=True,
    ),
    Row(
        "J/token", draw.joules, (0, 6),
        "Energy per token of this reply: gross, and net of what the idle machine draws. Below "
        "it, gross energy per token of this session's plain replies; /compare measures it.",
        lambda state: (
            _measured(state, {
                "gross": state.joules_per_token, "net": state.net_joules_per_token,
                "plain": state.plain_joules_per_token,
            }),
        ), cut=True, absent=draw.unpowered,
    ),
    GAP,
    Row(
        "self-check", draw.exactness_head, (4,),
        "When macspec check last compared this pair with plain decoding, token by token.",
        lambda state: (state.self_check or "Not run yet: run macspec check.",), cut=True,
    ),
    Row(
        "exactness", draw.badge, (0,),
        "What is guaranteed: greedy and keyed replies are exactly the text of plain decoding; "
        "with the block and match rules every text is exactly as likely as without drafts.",
        lambda state: (_exactness(state),),
    ),
    Row(
        "computed by", draw.kernels, (2, 7),
        "What does the arithmetic: macspec's own Metal kernels, or those of MLX.",
        lambda state: (state.kernels,), cut=True,
    ),
)  # fmt: skip

LINES = tuple((index, rank) for index, row in enumerate(ROWS) for rank in row.ranks)
"""All lines from top to bottom: the row of each, and when it gives way."""

HELP = tuple((row.label, row.help) for row in ROWS if row.help)
"""The rows of the panel, and what they mean."""


def plan(state: PanelState, height: int) -> tuple[tuple[int, int], ...]:
    """The rows of a panel so high, by their index, and the lines of each.

    It depends on the height and on what can be measured here, so that nothing moves while a reply
    streams.
    """
    return _plan(height, tuple(row.absent(state) for row in ROWS))


@cache
def _plan(height: int, absent: tuple[bool, ...]) -> tuple[tuple[int, int], ...]:
    there = [line for line in LINES if not absent[line[0]]]
    order = sorted(range(len(there)), key=lambda line: there[line][1])
    kept = sorted(order[: max(height, 0)])
    return tuple(
        (index, len(list(lines)))
        for index, lines in groupby((there[line] for line in kept), itemgetter(0))
    )


def panel_lines(state: PanelState, width: int, height: int) -> tuple[Line, ...]:
    """``height`` lines, each of them ``width`` columns wide."""
    lines: list[Line] = []
    for index, count in plan(state, height):
        lines += ROWS[index].draw(state, width, count)
    lines += [BLANK] * (height - len(lines))
    return tuple(fit(line, width) for line in lines[: max(height, 0)])


def tooltip(state: PanelState, y: int, height: int) -> str | None:
    """What a line of a panel so high means, and all of what it may have cut; None for a gap."""
    at = 0
    for index, count in plan(state, height):
        at += count
        if y < at:
            row = ROWS[index]
            meaning = row.help or ROWS[index + 1].help
            all = one_line(", ".join(filter(None, row.values(state)))) if row.cut else ""
            return None if row is GAP else f"{meaning}\n\n{all}" if all else meaning
    return None


def facts(state: PanelState) -> Iterator[str]:
    """The panel in words: a line for everything that is known."""
    for row in ROWS:
        for name, value in zip(row.label.split(", "), row.values(state), strict=False):
            text = one_line(value).strip()
            if text not in ("", DASH):
                yield f"{name}: {text}"


def summary_line(state: PanelState, width: int) -> Line:
    """The panel in one line, as far as it holds it.

    While a reply streams, which numbers it has depends on the width alone.
    """
    sign, role = draw.SIGNS.get(state.activity, draw.UNKNOWN)
    line: Line = ((f"{sign} ", role),)
    if draw.progressing(state):
        line = (*line, (f"{state.activity} ", "value"))
        room = max(min(width - cells(line) - 6, 40), 0)
        return fit((*line, *bar(state.progress, room), (percent(state.progress), "value")), width)
    if not state.passes:
        return fit((*line, (one_line(state.activity), "value")), width)
    gap = 0
    for part in draw.summary(state, width):
        if cells(line) + gap + cells(part) > width:
            break
        line = (*line, (" " * gap, "plain"), *part)
        gap = 2 if width > draw.SHORT_WIDTH else 1
    return fit(line, width)
