"""What each row of the live panel shows, and its short form for the summary line.

Each function turns a state, a width and a number of lines into that many lines.
"""

from __future__ import annotations

from rich.cells import cell_len

from macspec.models.sidecars import label
from macspec.plaintext import one_line

from ..widgets.lines import BLANK, Line, Role, cells, figure, fit, fitting, ruled, sides, wrapped
from .charts import HIGH, bar, big, columns, marks, sparkline
from .figures import DASH, fixed, gigabytes, milliseconds, number, percent, ratio, seconds, whole
from .panelstate import PanelState

SHORT_WIDTH = 40
"""Columns up to which the summary line saves blanks."""

NAMED = 60
"""Columns from which on the summary line names what the speed is compared with."""

NARROW = 31
"""Columns below which labels are shortened."""

BIG, BESIDE = 39, 20
"""Columns that large digits need, and the column where the numbers beside them begin."""

RAIL = 11
"""Columns of a power rail and its watts."""

SIGNS: dict[str, tuple[str, Role]] = {
    "no model": ("○", "label"),
    "loading": ("◌", "mark"),
    "ready": ("●", "good"),
    "reading": ("▷", "mark"),
    "writing": ("▶", "bar"),
    "waiting": ("◌", "warn"),
}
"""What the engine is doing, readable without colour."""

UNKNOWN: tuple[str, Role] = ("○", "label")

SAME_TEXT, SAME_DISTRIBUTION = "same text", "same distribution"

EXACT = {SAME_TEXT: "same text as plain", SAME_DISTRIBUTION: "same odds as plain"}
"""The same in words for those who have not met them."""

ENOUGH = 64
"""Tokens from which on a speed is compared with plain decoding: fewer are noise."""

TOOK, FELL = "●", "○"
"""An accepted and a rejected token of a round."""


# -- activity and models ------------------------------------------------------------------------


def activity(state: PanelState, width: int, rows: int) -> list[Line]:
    sign, role = SIGNS.get(state.activity, UNKNOWN)
    left: Line = ((f"{sign} ", role), (one_line(state.activity), "value"))
    if progressing(state):
        room = max(width - cells(left) - 6, 0)
        share = bar(state.progress, room)
        return [(*left, (" ", "plain"), *share, (" ", "plain"), (percent(state.progress), "value"))]
    right: Line = (
        (whole(state.tokens, 7), "value"),
        (f" {plural('token', state.tokens)}", "label"),
    )
    return [sides(left, right if state.passes else (), width)]


def plural(noun: str, count: int) -> str:
    """The noun in as many letters either way, so that nothing moves."""
    return f"{noun} " if count == 1 else f"{noun}s"


def progressing(state: PanelState) -> bool:
    """Whether there is a share of loading or prefill to show."""
    return number(state.progress) is not None and state.activity in ("loading", "reading")


def pair(state: PanelState, width: int, rows: int) -> list[Line]:
    target, draft = f"{DASH} no model loaded", DASH
    if state.target is not None:
        target = short_name(state.target)
        draft = f"{DASH} {one_line(state.draft_off or 'none for this target')}"
    drafting = state.draft and short_name(state.draft)
    if state.head is not None:
        drafting = f"{drafting}, {label(state.head)}" if drafting else label(state.head)
    draft = drafting or draft
    first: Line = (("target ", "label"), (target, "label" if state.target is None else "value"))
    how = f"rollback: {one_line(state.rollback or '').partition(':')[0]}"
    if state.rollback is not None and cells(first) + 1 + cell_len(how) <= width:
        first = sides(first, ((how, "label"),), width)
    second: Line = (("draft  ", "label"), (draft, "plain" if drafting else "label"))
    return [fit(line, width) for line in (first, second)[:rows]]


def short_name(name: str) -> str:
    """A model's name without its owner or folder."""
    return one_line(name).rstrip("/").rpartition("/")[2]


# -- speed --------------------------------------------------------------------------------------


def speed_role(times: float | None) -> Role:
    """Good above plain decoding, a warning below it, neutral within three percent."""
    if times is None:
        return "label"
    return "good" if times >= 1.03 else "warn" if times < 0.97 else "value"


def drafted(state: PanelState) -> bool:
    """Whether anything was drafted in the reply."""
    return state.acceptance is not None


def against_plain(state: PanelState) -> float | None:
    """The reply's speed over plain decoding's, or the session's while the reply is short; None
    where nothing was drafted or compared, or too little for more than noise."""
    if not drafted(state) or state.session_tokens < ENOUGH:
        return None
    if state.tokens < ENOUGH:
        return number(state.session_speedup)
    return ratio(state.tokens_per_s_reply, state.plain_tokens_per_s)


def current_speed(state: PanelState) -> float | None:
    """Tokens per second now; the whole reply's once it is over."""
    return state.tokens_per_s if state.tokens_per_s is not None else state.tokens_per_s_reply


def speed_head(state: PanelState, width: int, rows: int) -> list[Line]:
    times, right = against_plain(state), BLANK
    if times is not None:
        right = ((f"{fixed(times, 4, 2).strip()}×", speed_role(times)), (" plain", "label"))
    elif state.passes and not drafted(state):
        right = (("plain", "label"),)
    return [ruled("Speed", width, right)]


def speed(state: PanelState, width: int, rows: int) -> list[Line]:
    """One line; with three, the number is three lines high."""
    now, ttft = current_speed(state), seconds(state.ttft_s)
    session = f"{fixed(state.session_tokens_per_s, 5, 1)}   "
    digits = big(fixed(now, 4, 1)) if rows >= HIGH and width >= BIG else None
    if digits is None:
        left: Line = ((fixed(now, 5, 1), "value"), (" tok/s", "label"))
        name = fitting(width - cells(left) - cell_len(ttft) - 2, "first token", "first")
        right: Line = ((f"{name} ", "label"), (ttft, "value"))
        below = [figure("this reply", _rate(state), width), figure("session", session, width)]
        return [sides(left, right, width), *below, *[BLANK] * rows][:rows]
    room = width - BESIDE
    lines: tuple[Line, ...] = (
        ((f"{digits[0]:<{BESIDE}}", "value"), *figure("this reply", _rate(state), room)),
        ((f"{digits[1]:<{BESIDE}}", "value"), *figure("session", session, room)),
        (
            (f"{digits[2]:<13}", "value"),
            (f"{'tok/s':<{BESIDE - 13}}", "label"),
            *figure("first token", ttft, room),
        ),
    )
    return [*lines, *[BLANK] * (rows - HIGH)]


def _rate(state: PanelState) -> str:
    return f"{fixed(state.tokens_per_s_reply, 5, 1)}   "


def history(state: PanelState, width: int, rows: int) -> list[Line]:
    lines = sparkline(state.speeds, width, rows, state.plain_tokens_per_s)
    if not state.speeds:
        lines[-1] = (("▁" * width, "track"),)
    return lines


def changes(state: PanelState, width: int, rows: int) -> list[Line]:
    return [marks(state.marks, len(state.speeds), width)]


def latency(state: PanelState, width: int, rows: int) -> list[Line]:
    median, p95 = milliseconds(state.itl_ms_median), milliseconds(state.itl_ms_p95)
    return [_two(("per token", median, "value"), ("slowest 5%", p95, "value"), width)]


# -- speculation --------------------------------------------------------------------------------


def speculation_head(state: PanelState, width: int, rows: int) -> list[Line]:
    if not state.passes:
        return [ruled("Drafting", width)]
    if state.drafter is None:
        return [ruled("Drafting", width, (("not drafting", "label"),))]
    between = " depth " if width >= NARROW else " "
    right: Line = (
        (one_line(state.drafter), "value"),
        (between, "label"),
        (fixed(state.round_depth, 2), "value"),
    )
    return [ruled("Drafting", width, right)]


def newest_round(state: PanelState, width: int, rows: int) -> list[Line]:
    """A sign for each token that the latest round drafted."""
    label, count = "round ", state.round_drafted
    if not count:
        return [((label, "label"), (f"{DASH} nothing drafted" if state.passes else DASH, "label"))]
    accepted = min(state.round_accepted, count)
    end = f" {accepted}/{count}".rjust(6)
    shown = min(count, max(width - len(label) - len(end), 0))
    took = min(accepted, shown)
    left: Line = ((label, "label"), (TOOK * took, "gain"), (FELL * (shown - took), "track"))
    return [sides(left, ((end, "value"),), width)]


def acceptance(state: PanelState, width: int, rows: int) -> list[Line]:
    shares = {"accepted": state.acceptance, "     now": state.acceptance_now}
    return [_share(label, share, state, width) for label, share in shares.items()][:rows]


def _share(label: str, share: float | None, state: PanelState, width: int) -> Line:
    left: Line = ((label, "label"), (" ", "plain"), (percent(share), "value"), (" ", "plain"))
    room = max(width - cells(left), 0)
    if number(share) is None:
        reasons: tuple[str, ...] = ("none yet",)
        if state.method == "off" or state.depth == 0:
            reasons = ("switched off", "off")
        elif state.passes:
            reasons = ("nothing drafted", "none")
        return (*left, (fitting(room, *reasons), "label"))
    return (*left, *bar(share, room))


def positions(state: PanelState, width: int, rows: int) -> list[Line]:
    shares, name = state.acceptance_by_position, "1st, 2nd, …"
    found = columns(shares, width, rows)
    if not shares:
        found[0] = ((f"{DASH} {name}", "label"),)
    elif found and cells(found[0]) + len(name) + 2 <= width:
        found[0] = sides(found[0], ((name, "label"),), width)
    return found


def passes(state: PanelState, width: int, rows: int) -> list[Line]:
    rate, count = fixed(state.tokens_per_pass, 5, 2), whole(state.passes or None, 7)
    return [_two(("tokens/pass", rate, "value"), ("passes", count, "plain"), width)]


def chosen(state: PanelState, width: int, rows: int) -> list[Line]:
    method, depth = one_line(state.method), str(state.depth)
    return [_two(("method", method, "plain"), ("depth", depth, "plain"), width)]


def why(state: PanelState, width: int, rows: int) -> list[Line]:
    """The engine's sentence."""
    text = one_line(state.why)
    if not text and not state.passes and state.activity not in ("reading", "writing", "waiting"):
        text = "Numbers appear with the first reply."
    role: Role = "plain" if state.passes and state.drafter is None else "label"
    return [((line, role),) for line in wrapped(text[:1].upper() + text[1:], width, rows)]


# -- context and memory -------------------------------------------------------------------------


def capacity_head(state: PanelState, width: int, rows: int) -> list[Line]:
    return [ruled("Capacity", width)]


def context(state: PanelState, width: int, rows: int) -> list[Line]:
    if number(state.context_limit) is None:
        return [(("context ", "label"), (f"{DASH} no model loaded", "label"))]
    share = ratio(state.context_used, state.context_limit)
    text = f"{whole(state.context_used, 7)} /{whole(state.context_limit, 8)}"
    return [_filled("context", share, text, width)]


def memory(state: PanelState, width: int, rows: int) -> list[Line]:
    """What is in use, and in a second line what the pair needs with a full context."""
    limit, planned = state.memory_limit, ratio(state.memory_plan, state.memory_limit)
    role: Role = "bad" if planned is not None and planned > 1 else "value"
    plan = figure("┃ at full context", f"{gigabytes(state.memory_plan)} GB", width, role)
    if number(limit) is None and number(state.memory_used) is None:
        return [(("memory  ", "label"), (f"{DASH} no model loaded", "label")), plan][:rows]
    text = f"{gigabytes(state.memory_used)} /{gigabytes(limit)} GB"
    used = _filled("memory ", ratio(state.memory_used, limit), text, width, planned)
    return [used, plan][:rows]


def _filled(
    label: str, share: float | None, text: str, width: int, notch: float | None = None
) -> Line:
    role: Role = "warn" if share is not None and share >= 0.9 else "bar"
    end: Line = ((text, "value"),)
    room = width - len(label) - 2 - cells(end)
    middle = bar(share, room, role, notch) if room >= 3 else ((" " * max(room, 0), "plain"),)
    return fit(((f"{label} ", "label"), *middle, (" ", "plain"), *end), width)


# -- energy -------------------------------------------------------------------------------------


def energy_head(state: PanelState, width: int, rows: int) -> list[Line]:
    source = one_line(state.energy_source)
    return [ruled("Energy", width, ((source, "label"),) if source else ())]


def unpowered(state: PanelState) -> bool:
    """Whether nothing measures power here, so that all rows of it fold into one."""
    return bool(state.energy_reason) and not state.watts


def power(state: PanelState, width: int, rows: int) -> list[Line]:
    if unpowered(state):
        return [(("power not available", "label"),), *[BLANK] * (rows - 1)]
    if not state.watts:
        return [((f"{DASH} no reading yet", "label"),), *[BLANK] * (rows - 1)]
    beside = max(width // RAIL, 1)
    rails = [fit(_rail(*rail), max(width // beside, 1)) for rail in state.watts.items()]
    found = [rails[at : at + beside] for at in range(0, rows * beside, beside)]
    return [tuple(part for rail in line for part in rail) for line in found]


def _rail(name: str, watts: float) -> Line:
    known = "all" if name == "system" else one_line(name)
    label = fitting(5, known.upper() if len(known) <= 4 and name != "system" else known)
    return ((f"{label} ", "label"), (fixed(watts, 4, 1), "value"), (" W", "label"))


def joules(state: PanelState, width: int, rows: int) -> list[Line]:
    """The reply's energy per token, and in a second line plain decoding's."""
    gross, net = state.joules_per_token, fixed(state.net_joules_per_token, 5, 2)
    right: Line = ((" gross ", "label"), (net, "value"), (" net", "label"))
    if number(gross) is None:
        right = ((f" {_unmeasured(state)}", "label"),)
    elif width < NARROW - 1:
        right = (("  net ", "label"), (net, "value"))
    reply: Line = (("J/token ", "label"), (fixed(gross, 5, 2), "value"), *right)
    return [reply, _plain_joules(state)][:rows]


def _plain_joules(state: PanelState) -> Line:
    plain = state.plain_joules_per_token
    left: Line = (("  plain ", "label"), (fixed(plain, 5, 2), "value"))
    if number(plain) is None:
        reason = _unmeasured(state) if state.energy_reason else "measured by compare"
        return (*left, (f" {reason}", "label"))
    share = ratio(state.joules_per_token, plain)
    role: Role = "good" if share is not None and share <= 0.97 else "value"
    return (*left, (" gross ", "label"), (f"{fixed(share, 5, 2)}×", role))


def _unmeasured(state: PanelState) -> str:
    if not state.energy_reason:
        return "not measured"
    return one_line(state.energy_reason) if state.watts else "no power readings"


# -- exactness ----------------------------------------------------------------------------------


def promise(rule: str, temperature: float) -> tuple[str, str]:
    """What a reply shares with plain decoding, and what guarantees it.

    Greedy decoding, and with a fixed seed the keyed rule, give the same text; the other rules
    give the same distribution.
    """
    if temperature == 0:
        return SAME_TEXT, "greedy"
    return (SAME_TEXT if rule == "keyed" else SAME_DISTRIBUTION), rule


def failed(state: PanelState) -> bool:
    """Whether the last self-check found a different text."""
    return state.self_check.upper().startswith("FAILED")


def exactness_head(state: PanelState, width: int, rows: int) -> list[Line]:
    tested = one_line(state.self_check)
    if not tested:
        return [ruled("Exactness", width, ((f"{DASH} run macspec check", "label"),))]
    day = tested.replace(" on ", " ").rsplit(" ", 1)[0]
    shown = fitting(width - len("Exactness") - 3, f"self-check {tested}", tested, day)
    return [ruled("Exactness", width, ((shown, "bad" if failed(state) else "plain"),))]


def badge(state: PanelState, width: int, rows: int) -> list[Line]:
    same, whose = promise(state.rule, number(state.temperature) or 0.0)
    right: Line = ((one_line(whose), "value"),)
    if whose != "greedy" and width >= NARROW - 1:
        right = (*right, (" rule", "label"))
    left: Line = (("✓ ", "good"), (EXACT[same], "good"))
    if failed(state):
        left = (("✗ ", "bad"), ("self-check failed", "bad"))
    return [sides(left, right, width)]


def kernels(state: PanelState, width: int, rows: int) -> list[Line]:
    text = one_line(state.kernels) or f"{DASH} no model loaded"
    first, *more = wrapped(f"computed by {text}", width, rows)
    lines: list[Line] = [(("computed by", "label"), (first.removeprefix("computed by"), "plain"))]
    return lines + [((line, "plain"),) for line in more]


def _two(left: tuple[str, str, Role], right: tuple[str, str, Role], width: int) -> Line:
    """Two labelled figures side by side; only the left one where there is little room."""
    each = (width - 3) // 2
    if any(cell_len(label) + 1 + cell_len(value) > each for label, value, _ in (left, right)):
        return figure(left[0], left[1], width, left[2])
    first, second = (figure(label, value, each, role) for label, value, role in (left, right))
    return fit((*first, (" " * (width - 2 * each), "plain"), *second), width)


# -- the summary line ---------------------------------------------------------------------------


def summary(state: PanelState, width: int) -> list[Line]:
    """The parts of the panel's one-line form, the most important first."""
    badge: Line = (("✓ ", "good"), ("exact", "label"))
    if failed(state):
        badge = (("✗ ", "bad"), ("check", "bad"))
    drafting = "plain"
    if state.drafter is not None:
        drafting = f"{fitting(6, one_line(state.drafter))} {fixed(state.round_depth, 2).strip()}"
    times, context = against_plain(state), ratio(state.context_used, state.context_limit)
    over = " plain" if width >= NAMED else ""
    headline: Line = ((" " * (5 + len(over)), "label"),)
    if times is not None:
        headline = ((f"{fixed(times, 4, 2)}×", speed_role(times)), (over, "label"))
    unit = " tok/s" if width > SHORT_WIDTH else " t/s"
    return [
        ((fixed(current_speed(state), 5, 1), "value"), (unit, "label")),
        headline,
        ((f"{drafting:<9}", "plain"),),
        ((percent(state.acceptance), "value"), (" accepted", "label")),
        ((fixed(state.tokens_per_pass, 4, 2), "value"), ("/pass", "label")),
        badge,
        (("context ", "label"), (percent(context), "value")),
        ((fixed(state.joules_per_token, 4, 2), "value"), (" J/token", "label")),
        (("first token", "label"), (seconds(state.ttft_s), "value")),
    ]
