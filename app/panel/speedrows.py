"""Lines about speed and speculation."""

from __future__ import annotations

from rich.cells import cell_len

from macspec.plaintext import one_line

from ..widgets.lines import BLANK, Line, Role, cells, figure, fit, fitting, ruled, sides, wrapped
from .bars import axis, bar, columns
from .digits import HIGH, big
from .figures import DASH, fixed, milliseconds, number, percent, ratio, seconds, whole
from .sparkline import marks, sparkline
from .state import PanelState

NARROW = 31
"""Columns below which there are fewer words."""

BIG, BESIDE = 32, 20
"""Columns that large digits need, and the column at which there is room beside them."""

SIGNS: dict[str, tuple[str, Role]] = {
    "no model": ("○", "label"),
    "loading": ("◌", "mark"),
    "ready": ("●", "good"),
    "reading": ("◐", "mark"),
    "writing": ("●", "bar"),
    "waiting": ("◌", "warn"),
}


def speed_role(times: float | None) -> Role:
    """Good above plain, a warning below it, neither within a few per cent."""
    if times is None:
        return "label"
    return "good" if times >= 1.03 else "warn" if times < 0.97 else "value"


def against_plain(state: PanelState) -> float | None:
    """The reply's speed over plain's, or where that is not known yet the newest speed's."""
    mine = state.tokens_per_s_reply or state.tokens_per_s
    return ratio(mine, state.plain_tokens_per_s)


def activity(state: PanelState, width: int, rows: int) -> list[Line]:
    sign, role = SIGNS.get(state.activity, ("●", "label"))
    left: Line = ((f"{sign} ", role), (one_line(state.activity), "value"))
    if number(state.progress) is not None and state.activity in ("loading", "reading"):
        room = max(width - cells(left) - 7, 0)
        return [
            (
                *left,
                (" ", "plain"),
                *bar(state.progress, room),
                (" ", "plain"),
                (percent(state.progress), "value"),
            )
        ]
    right: Line = ((whole(state.tokens, 7), "value"), (" tokens", "label"))
    return [sides(left, right if state.passes else (), width)]


def pair(state: PanelState, width: int, rows: int) -> list[Line]:
    target: Line = (("target ", "label"), (f"{DASH} no model is loaded", "label"))
    if state.target is not None:
        target = (("target ", "label"), (_name(state.target), "value"))
    if state.draft is not None:
        draft: Line = (("draft  ", "label"), (_name(state.draft), "plain"))
    else:
        reason = state.draft_off or ("this pair has none" if state.target else "")
        draft = (("draft  ", "label"), (f"{DASH} {one_line(reason)}", "label"))
    return [fit(line, width) for line in (target, draft)[:rows]]


def speed_head(state: PanelState, width: int, rows: int) -> list[Line]:
    times, plain = against_plain(state), state.plain_tokens_per_s
    right: Line = ()
    if number(plain) is not None:
        right = ((" plain ", "label"), (fixed(plain, 5, 1), "plain"))
    if times is not None:
        right = ((f"{fixed(times, 4, 2)}×", speed_role(times)), *right)
    return [ruled("Speed", width, right)]


def speed(state: PanelState, width: int, rows: int) -> list[Line]:
    """One line; with three, the number is three lines high."""
    now = state.tokens_per_s if state.tokens_per_s is not None else state.tokens_per_s_reply
    ttft = seconds(state.ttft_s)
    digits = big(fixed(now, 4, 1)) if rows >= HIGH and width >= BIG else None
    if digits is None:
        left: Line = ((fixed(now, 5, 1), "value"), (" tok/s", "label"))
        right: Line = (("TTFT ", "label"), (ttft, "value"))
        return [sides(left, right, width)] + [BLANK] * (rows - 1)
    room = width - BESIDE
    reply = f"{fixed(state.tokens_per_s_reply, 5, 1)}   "
    lines: tuple[Line, ...] = (
        ((f"{digits[0]:<{BESIDE}}", "value"),),
        ((f"{digits[1]:<{BESIDE}}", "value"), *figure("reply", reply, room)),
        (
            (f"{digits[2]:<13}", "value"),
            (f"{'tok/s':<{BESIDE - 13}}", "label"),
            *figure("TTFT", ttft, room),
        ),
    )
    return [*lines, *[BLANK] * (rows - HIGH)]


def history(state: PanelState, width: int, rows: int) -> list[Line]:
    lines = sparkline(state.speeds, width, rows, state.plain_tokens_per_s)
    if not state.speeds:
        lines[-1] = (("▁" * width, "track"),)
    return lines


def changes(state: PanelState, width: int, rows: int) -> list[Line]:
    return [marks(state.marks, len(state.speeds), width)]


def latency(state: PanelState, width: int, rows: int) -> list[Line]:
    median, p95 = milliseconds(state.itl_ms_median), milliseconds(state.itl_ms_p95)
    return [_two(("ITL", median, "value"), ("p95", p95, "value"), width)]


def speculation_head(state: PanelState, width: int, rows: int) -> list[Line]:
    if not state.passes:
        return [ruled("Speculation", width)]
    if state.drafter is None:
        return [ruled("Speculation", width, (("plain now", "warn"),))]
    between = " depth " if width >= NARROW else " "
    right: Line = (
        (one_line(state.drafter), "value"),
        (between, "label"),
        (fixed(state.round_depth, 2), "value"),
    )
    return [ruled("Speculation", width, right)]


def acceptance(state: PanelState, width: int, rows: int) -> list[Line]:
    return [_share("acceptance", state.acceptance, state, width)]


def acceptance_now(state: PanelState, width: int, rows: int) -> list[Line]:
    return [_share("       now", state.acceptance_now, state, width)]


def positions(state: PanelState, width: int, rows: int) -> list[Line]:
    found = columns(state.acceptance_by_position, width, rows)
    name = "by position"
    if not state.acceptance_by_position:
        found[0] = ((f"{DASH} {name}", "label"),)
    elif found and cells(found[0]) + len(name) + 2 <= width:
        found[0] = sides(found[0], ((name, "label"),), width)
    return found


def axis_of_positions(state: PanelState, width: int, rows: int) -> list[Line]:
    return [((axis(len(state.acceptance_by_position), width), "label"),)]


def passes(state: PanelState, width: int, rows: int) -> list[Line]:
    rate, count = fixed(state.tokens_per_pass, 5, 2), whole(state.passes or None, 7)
    return [_two(("tok/pass", rate, "value"), ("passes", count, "plain"), width)]


def chosen(state: PanelState, width: int, rows: int) -> list[Line]:
    method, depth = one_line(state.method), str(state.depth)
    return [_two(("method", method, "plain"), ("depth", depth, "plain"), width)]


def why(state: PanelState, width: int, rows: int) -> list[Line]:
    """The engine's sentence without what the heading says already."""
    text = one_line(state.why)
    role: Role = "label"
    if not state.passes:
        quiet = state.activity in ("reading", "writing", "waiting")
        text = text or ("" if quiet else "Numbers come with the first reply.")
    elif state.drafter is None:
        text, role = text.removeprefix("plain: "), "plain"
    else:
        text = text.removeprefix(f"{state.drafter} at depth {state.round_depth}: ")
    return [((line, role),) for line in wrapped(text, width, rows)]


def _two(left: tuple[str, str, Role], right: tuple[str, str, Role], width: int) -> Line:
    """Two labelled figures beside each other; only the left one where there is little room."""
    each = (width - 3) // 2
    if any(cell_len(label) + 1 + cell_len(value) > each for label, value, _ in (left, right)):
        return figure(left[0], left[1], width, left[2])
    first, second = (figure(label, value, each, role) for label, value, role in (left, right))
    return fit((*first, (" " * (width - 2 * each), "plain"), *second), width)


def _share(label: str, share: float | None, state: PanelState, width: int) -> Line:
    left: Line = ((label, "label"), (" ", "plain"), (percent(share), "value"), (" ", "plain"))
    room = max(width - cells(left), 0)
    if number(share) is None:
        reasons = ("nothing drafted", "none yet") if _drafts(state) else ("switched off", "off")
        return (*left, (fitting(room, *reasons), "label"))
    return (*left, *bar(share, room))


def _drafts(state: PanelState) -> bool:
    return state.method != "off" and state.depth != 0


def _name(name: str) -> str:
    return one_line(name).rsplit("/", 1)[-1]
