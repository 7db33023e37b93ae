"""Lines about speed and speculation."""

from __future__ import annotations

from macspec.plaintext import one_line

from ..talk.panel import PanelState
from .bars import axis, bar, columns
from .figures import DASH, fixed, milliseconds, number, percent, ratio, whole
from .lines import Line, Role, beside, cells, cut, figure, fit, ruled, sides, wrapped
from .sparkline import marks, sparkline

LABEL = 11
"""Columns of a label before a bar."""

SIGNS: dict[str, tuple[str, Role]] = {
    "no model": ("○", "label"),
    "loading": ("◌", "mark"),
    "ready": ("●", "good"),
    "reading": ("◐", "mark"),
    "writing": ("●", "bar"),
    "waiting": ("◌", "warn"),
}

PASSES_AFTER = "in the first reply"


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
    target: Line = (("target ", "label"), (_name(state.target), "value"))
    if state.draft is not None:
        draft: Line = (("draft  ", "label"), (_name(state.draft), "plain"))
    else:
        reason = state.draft_off or ("this pair has none" if state.target else "")
        draft = (("draft  ", "label"), (f"{DASH} {one_line(reason)}", "label"))
    return [fit(line, width) for line in (target, draft)[:rows]]


def speed_head(state: PanelState, width: int, rows: int) -> list[Line]:
    times = against_plain(state)
    if times is None:
        return [ruled("Speed", width)]
    return [
        ruled("Speed", width, ((f"{fixed(times, 4, 2)}×", speed_role(times)), (" plain", "label")))
    ]


def speed(state: PanelState, width: int, rows: int) -> list[Line]:
    now = state.tokens_per_s if state.tokens_per_s is not None else state.tokens_per_s_reply
    left: Line = ((fixed(now, 5, 1), "value"), (" tok/s", "label"))
    plain = state.plain_tokens_per_s
    if number(plain) is None:
        right: Line = (("plain ", "label"), (DASH, "label"), (" not measured", "label"))
    else:
        right = (("plain ", "label"), (fixed(plain, 5, 1), "value"))
    return [sides(left, right, width)]


def history(state: PanelState, width: int, rows: int) -> list[Line]:
    lines = sparkline(state.speeds, width, rows, state.plain_tokens_per_s)
    if not state.speeds:
        lines[-1] = (("▁" * width, "track"),)
    return lines


def changes(state: PanelState, width: int, rows: int) -> list[Line]:
    return [marks(state.marks, len(state.speeds), width)]


def latency(state: PanelState, width: int, rows: int) -> list[Line]:
    each = (width - 2) // 2
    first = beside(
        (
            figure("TTFT", milliseconds(_thousand(state.ttft_s)), each),
            figure("reply", f"{fixed(state.tokens_per_s_reply, 5, 1)} t/s", each),
        ),
        width,
    )
    second = beside(
        (
            figure("ITL", milliseconds(state.itl_ms_median), each),
            figure("p95", milliseconds(state.itl_ms_p95), each),
        ),
        width,
    )
    return [first, second][:rows]


def speculation_head(state: PanelState, width: int, rows: int) -> list[Line]:
    if not state.passes:
        return [ruled("Speculation", width)]
    if state.drafter is None:
        return [ruled("Speculation", width, (("plain now", "warn"),))]
    right: Line = (
        (one_line(state.drafter), "value"),
        (" depth ", "label"),
        (fixed(state.depth, 2), "value"),
    )
    return [ruled("Speculation", width, right)]


def acceptance(state: PanelState, width: int, rows: int) -> list[Line]:
    reason = "nothing drafted yet" if _drafts(state) else "speculation is off"
    return [_share("acceptance", state.acceptance, reason, width)]


def acceptance_now(state: PanelState, width: int, rows: int) -> list[Line]:
    reason = "no recent draft" if _drafts(state) else "speculation is off"
    return [_share("       now", state.acceptance_now, reason, width)]


def positions(state: PanelState, width: int, rows: int) -> list[Line]:
    if not state.acceptance_by_position:
        return [fit((), width)] * (rows - 1) + [(("by position ", "label"), (DASH, "label"))]
    return columns(state.acceptance_by_position, width, rows)


def axis_of_positions(state: PanelState, width: int, rows: int) -> list[Line]:
    return [((axis(len(state.acceptance_by_position), width), "label"),)]


def passes(state: PanelState, width: int, rows: int) -> list[Line]:
    each = (width - 2) // 2
    return [
        beside(
            (
                figure("tok/pass", fixed(state.tokens_per_pass, 5, 2), each),
                figure("passes", whole(state.passes or None, 7), each),
            ),
            width,
        )
    ]


def chosen(state: PanelState, width: int, rows: int) -> list[Line]:
    each = (width - 2) // 2
    return [
        beside(
            (
                figure("method", one_line(state.method_set), each, "plain"),
                figure("depth", str(state.depth_set), each, "plain"),
            ),
            width,
        )
    ]


def why(state: PanelState, width: int, rows: int) -> list[Line]:
    text = one_line(state.why)
    role: Role = "label"
    if state.passes and state.drafter is None:
        text, role = text.removeprefix("plain: "), "warn"
    return [((line, role),) for line in wrapped(text, width, rows)]


def _share(label: str, share: float | None, reason: str, width: int) -> Line:
    left: Line = ((label, "label"), (" ", "plain"), (percent(share), "value"), (" ", "plain"))
    room = width - cells(left)
    if number(share) is None:
        return (*left, (cut(reason, max(room, 0)), "label"))
    return (*left, *bar(share, max(room, 0)))


def _drafts(state: PanelState) -> bool:
    return state.method_set != "off" and state.depth_set != 0


def _name(name: str | None) -> str:
    return DASH if name is None else one_line(name).rsplit("/", 1)[-1]


def _thousand(seconds: float | None) -> float | None:
    known = number(seconds)
    return None if known is None else known * 1e3
