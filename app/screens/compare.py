"""Comparing plain and speculative decoding on the last prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size

from macspec.errors import MacspecError
from macspec.plaintext import neutral, one_line

from ..chat.comparison import MODES, TEXT_RULES, Comparison, TextDivergence
from ..panel.charts import bar, big
from ..panel.draw import SAME_DISTRIBUTION, SAME_TEXT, speed_role
from ..panel.figures import DASH, fixed, number, percent, ratio, seconds, whole
from ..widgets.lines import BLANK, Line, LinesView, Role, cells, cut, fit, sides, wrapped
from .box import Box

PER_SECOND = 4
"""How often the screen is updated."""


class ComparisonView(LinesView):
    """A comparison, as far as it has come."""

    DEFAULT_CSS = "ComparisonView { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._found = Comparison()

    def show(self, found: Comparison) -> None:
        self._found = found
        lines = comparison_lines(found, self.size.width)
        if len(lines) != len(self.lines):
            self.refresh(layout=True)
        self.show_lines(lines)

    def on_resize(self) -> None:
        self.show(self._found)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(comparison_lines(self._found, width))


class CompareScreen(Box[None]):
    """Shows a comparison that runs, snapshot by snapshot. Esc stops it, then closes the screen."""

    heading = "Plain against speculative"
    DEFAULT_CSS = """
    CompareScreen {
        & > #box { max-width: 88; height: auto; max-height: 40; }
        VerticalScroll {
            height: auto;
            max-height: 75vh;
            padding: 1 1 0 1;
            margin-bottom: 1;
            scrollbar-size-vertical: 1;
        }
        &.-tight > #box { height: 100%; max-height: 100%; }
        &.-tight VerticalScroll { height: 1fr; max-height: 100%; padding: 0; margin: 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Stop, then close"),
        Binding("q", "leave", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
    ]

    def __init__(self, run: AsyncIterator[Comparison]) -> None:
        super().__init__()
        self._run = run
        self._newest = Comparison()
        self.finished = False
        """Whether the run has ended."""

    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield ComparisonView()

    def on_mount(self) -> None:
        self.hint(("Esc", "stop"))
        self._follow()
        self.set_interval(1 / PER_SECOND, self._show)

    @work(exit_on_error=False)
    async def _follow(self) -> None:
        try:
            async for found in self._run:
                self._newest = found
        except MacspecError as error:
            self.status(str(error), "error")
        finally:
            self.finished = True
            if self.is_mounted:
                self._show()
                self.hint(("Esc", "close"), ("↑ ↓", "scroll"))

    def _show(self) -> None:
        for view in self.query(ComparisonView):  # There is none while it is being closed.
            view.show(self._newest)

    def action_leave(self) -> None:
        if self.finished:
            self.dismiss(None)
        else:
            self.workers.cancel_node(self)

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


NAME = 12
"""Columns of a label."""

WIDE = 66
"""Columns from which on the ratio is three lines high."""


def comparison_lines(found: Comparison, width: int) -> tuple[Line, ...]:
    """All of it; each line is ``width`` columns wide."""
    lines = [
        *_head(found, width),
        BLANK,
        *_race(found, width),
        BLANK,
        *_badge(found, width),
        *([BLANK, *_divergence(found.fork, width)] if found.fork is not None else []),
        BLANK,
        *_table(found, width),
        *_notes(found, width),
    ]
    return tuple(fit(line, width) for line in lines)


def _notes(found: Comparison, width: int) -> list[Line]:
    lines = [line for note in found.notes for line in wrapped(one_line(note), width, 3) if line]
    return [BLANK, *(((line, "label"),) for line in lines)] if lines else []


def _head(found: Comparison, width: int) -> list[Line]:
    prompt = one_line(found.prompt[:1000])
    done = found.plain.replies + found.speculative.replies
    how = "greedy" if found.rule == "greedy" else f"{one_line(found.rule)} rule"
    if found.rule == "keyed":
        how += ", one seed"
    if found.drafting:
        how += f", method {one_line(found.drafting)}"
    if found.finished:
        right: Line = ((f"{done} replies, alternating", "label"),)
    else:
        share = ratio(done + min(max(number(found.progress) or 0.0, 0.0), 1.0), found.planned)
        doing: Line = ((f"{one_line(found.doing)} ", "label"),) if found.doing else ()
        right = (*doing, *bar(share, 12), (f" {done}/{found.planned}", "value"))
    return [
        (("› ", "head"), (cut(prompt, max(width - 2, 0)), "plain")),
        sides(((how, "label"),), right, width),
    ]


def _race(found: Comparison, width: int) -> list[Line]:
    """Both speeds on one scale, and their ratio."""
    plain, mine = found.plain.tokens_per_s, found.speculative.tokens_per_s
    times = ratio(mine, plain)
    most = max(number(plain) or 0.0, number(mine) or 0.0)
    digits = big(f"{fixed(times, 4, 2).strip()}x") if times is not None and width >= WIDE else None
    room = width - (len(digits[0]) + 3 if digits else 0)
    rows = [
        _speed("plain", plain, most, "bar", room, found),
        _speed("speculative", mine, most, "gain", room, found),
    ]
    role: Role = speed_role(times)
    if digits is None:
        text = DASH if times is None else f"{fixed(times, 4, 2).strip()}×"
        return [*rows, (("".ljust(NAME), "plain"), (text, role), (" the speed", "label"))]
    lines = [rows[0], BLANK, rows[1]]
    return [
        (*fit(line, room), ("   ", "plain"), (part, role))
        for line, part in zip(lines, digits, strict=True)
    ]


def _speed(
    name: str, speed: float | None, most: float, role: Role, width: int, found: Comparison
) -> Line:
    label: Role = "value" if found.doing == name else "label"
    left: Line = (
        (name.ljust(NAME), label),
        (fixed(speed, 6, 1), "value"),
        (" tok/s ", "label"),
    )
    share = ratio(speed, most)
    return (*left, *bar(share, max(width - cells(left), 0), role))


def _measured(found: Comparison) -> list[tuple[str, ...]]:
    """Names of numbers, with their values for plain and for speculative decoding."""
    ways = (found.plain, found.speculative)
    return [
        ("tok/s", *(fixed(way.tokens_per_s, 6, 1) for way in ways)),
        ("tokens", *(whole(way.tokens, 8) for way in ways)),
        ("first token", *(seconds(way.ttft_s) for way in ways)),
        ("tokens/pass", *(fixed(way.tokens_per_pass, 8, 2) for way in ways)),
        ("accepted", "", percent(found.speculative.acceptance)),
        ("J/token", *(fixed(way.joules_per_token, 8, 2) for way in ways)),
    ]


def _table(found: Comparison, width: int) -> list[Line]:
    *rows, energy = [_row(*row) for row in _measured(found)[1:]]
    share = ratio(found.speculative.joules_per_token, found.plain.joules_per_token)
    if share is not None:
        role: Role = "good" if share <= 0.97 else "warn" if share > 1.03 else "value"
        energy = (*energy, (f"  {fixed(share, 4, 2)}×", role))
    elif found.energy_reason:
        energy = (*energy[:1], (f"{DASH} {one_line(found.energy_reason)}", "label"))
    head: Line = (("".ljust(NAME), "plain"), (f"{'plain':>9}{'speculative':>13}", "label"))
    return [head, *rows, energy]


def _row(label: str, plain: str, speculative: str) -> Line:
    return (
        (label.ljust(NAME), "label"),
        (f"{plain.strip():>9}", "value"),
        (f"{speculative.strip():>13}", "value"),
    )


def _verdict(found: Comparison) -> tuple[str, Role, str, str]:
    """What the replies have in common: a sign, its role, a title, and what that means. Only rules
    that guarantee the same text must deliver it."""
    tokens = found.speculative.tokens
    if found.rule not in TEXT_RULES:
        about = f"the {one_line(found.rule)} rule samples anew: each text is one of many"
        return "✓", "good", SAME_DISTRIBUTION, about
    if found.equal is None:
        return "◌", "label", "no texts to compare yet", ""
    if found.equal:
        count = "every token is" if tokens is None else f"all {tokens:,} tokens are"
        return "✓", "good", SAME_TEXT, f"{count} the same"
    if found.fork is not None and found.fork.near_tie:
        about = (
            "two tokens have the same score up to rounding there, and a pass over more rows may "
            "round the other way: both texts are the model's"
        )
        title = f"{SAME_TEXT} up to a near-tie at token {found.fork.token + 1:,}"
        return "≈", "warn", title, about
    where = "" if found.fork is None else f" from token {found.fork.token + 1:,} on"
    about = "this should not happen: run macspec check, and report it with macspec check --report"
    return "✗", "bad", f"the texts differ{where}", about


def _badge(found: Comparison, width: int) -> list[Line]:
    sign, role, title, about = _verdict(found)
    return [((f"{sign} ", role), (title, role)), *_said(about, width)]


def _said(text: str, width: int) -> list[Line]:
    return [(("  ", "plain"), (line, "label")) for line in wrapped(text, width - 2, 4) if line]


def _divergence(fork: TextDivergence, width: int) -> list[Line]:
    room = max(width - NAME, 8)
    before = wrapped(_visible(fork.before[-300:]), room, 99)
    shared = [line for line in before if line][-2:]
    lines: list[Line] = [
        ((f"Divergence at token {fork.token + 1:,}", "head"), (_gap(fork), "label")),
        *_block("both", shared, "label"),
    ]
    for name, text in (("plain", fork.plain), ("speculative", fork.speculative)):
        after = wrapped(_visible(text[:300]), room, 2) if text else ["(ends here)", ""]
        lines += _block(name, [line for line in after if line], "plain")
    return lines


def _gap(fork: TextDivergence) -> str:
    return "" if fork.gap is None else f", {fork.gap:.2g} apart in score"


def _block(name: str, texts: list[str], role: Role) -> list[Line]:
    labels = [name, *[""] * len(texts)]
    return [
        ((label.ljust(NAME), "label"), (text, role))
        for label, text in zip(labels, texts or [""], strict=False)
    ]


def _visible(text: str) -> str:
    return neutral(text).replace("\n", "⏎ ").replace("\t", "⇥ ")


def sentences(found: Comparison) -> Iterator[str]:
    """The results for line mode, the outcome first."""
    times = ratio(found.speculative.tokens_per_s, found.plain.tokens_per_s)
    if times is not None:
        yield f"Speculative decoding is {times:.2f} times as fast as plain decoding."
    for name, *texts in _measured(found):
        values = [(mode, text.strip()) for mode, text in zip(MODES, texts, strict=True)]
        known = [f"{mode} {value}" for mode, value in values if value not in ("", DASH)]
        if known:
            yield f"{name}: {', '.join(known)}"
    if found.energy_reason:
        yield f"J/token: not measured; {one_line(found.energy_reason)}"
    _, _, title, about = _verdict(found)
    yield f"{title}; {about}" if about else title
    if (fork := found.fork) is not None:
        yield f"Divergence at token {fork.token + 1:,}{_gap(fork)}"
        yield f"plain continues: {one_line(fork.plain[:200])}"
        yield f"speculative continues: {one_line(fork.speculative[:200])}"
    yield from map(one_line, found.notes)
