"""A report as tables, words and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..plaintext import one_line
from .cells import ALL, FORCED, Cell, Ratio
from .document import cells_of
from .equality import Equality
from .sweeps import Held, points_of

DASH = "-"

POSITIONS = 8
"""Most positions of a chain that are shown."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells that are text already."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    """So many columns are aligned left, the others right."""
    worded: bool = False
    """Whether the last column is words, and aligned left too."""

    def text(self) -> str:
        """For a terminal; columns in which nothing is known are left out."""
        kept = [
            at
            for at in range(len(self.columns))
            if at < self.left or any(row[at] not in (DASH, "") for row in self.rows)
        ]
        whole = (self.columns, *self.rows)
        lines = [[row[at] for at in kept] for row in whole]
        widths = [max(len(line[at]) for line in lines) for at in range(len(kept))]
        made = [self.title] if self.title else []
        for line in lines:
            cells = [
                f"{cell:<{width}}" if self._left(at) else f"{cell:>{width}}"
                for at, cell, width in zip(kept, line, widths, strict=True)
            ]
            made.append("  ".join(["", *cells]).rstrip())
        return "".join(f"{line}\n" for line in made)

    def markdown(self) -> str:
        """The same for a page."""
        lines = [self.columns, self._rule(), *self.rows]
        table = "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)
        return f"**{_escaped(self.title)}**\n\n{table}" if self.title else table

    def _rule(self) -> tuple[str, ...]:
        return tuple("---" if self._left(at) else "---:" for at in range(len(self.columns)))

    def _left(self, at: int) -> bool:
        return at < self.left or (self.worded and at == len(self.columns) - 1)


def summary(cells: Sequence[Cell], baseline: str, group: str = ALL) -> Iterator[Table]:
    """A table for each temperature: all arms on one group of tasks."""
    columns = (
        "arm", "tok/s", f"vs {baseline}", "95 %", "whole", "tok/pass", "accepted", "prefill",
        "TTFT ms", "ITL ms", "p95", "J/token", "equal",
    )  # fmt: skip
    for temperature in sorted({cell.temperature for cell in cells}):
        members = [it for it in cells if it.group == group and it.temperature == temperature]
        rows = tuple(
            (
                it.arm,
                number(it.decode_tokens_per_s, "{:.1f}"),
                number(None if it.speedup is None else it.speedup.value, "{:.2f}x"),
                DASH if it.arm == baseline else interval(it.speedup),
                number(None if it.whole_speedup is None else it.whole_speedup.value, "{:.2f}x"),
                number(it.tokens_per_pass, "{:.2f}"),
                number(it.acceptance, "{:.2f}"),
                number(it.prefill_tokens_per_s, "{:.0f}"),
                number(None if it.ttft_s is None else 1e3 * it.ttft_s, "{:.0f}"),
                number(it.itl_ms_median, "{:.1f}"),
                number(it.itl_ms_p95, "{:.1f}"),
                number(it.joules_per_token, "{:.3g}"),
                equal(it.equality),
            )
            for it in members
        )
        if rows:
            yield Table(_title(temperature, group), columns, rows)


def by_workload(cells: Sequence[Cell], baseline: str) -> Iterator[Table]:
    """A table for each temperature: speed-up and tokens per pass of every arm by workload."""
    for temperature in sorted({cell.temperature for cell in cells}):
        there = [it for it in cells if it.temperature == temperature]
        arms = [arm for arm in dict.fromkeys(it.arm for it in there) if arm != baseline]
        groups = list(dict.fromkeys(it.group for it in there))
        rows = tuple(
            (group, *(_pair(there, group, arm) for arm in arms))
            for group in groups
            if group not in (ALL, ALL + FORCED)
        )
        if len(rows) > 1 and arms:
            title = f"temperature {temperature:g}: times {baseline}, and tokens per pass"
            yield Table(title, ("workload", *arms), rows)


def positions(cells: Sequence[Cell]) -> Iterator[Table]:
    """How often drafted tokens stand, by their place in the chain, on all tasks."""
    rows = [
        (
            cell.arm + (FORCED if cell.forced else ""),
            f"{cell.temperature:g}",
            *(f"{it:.2f}" for it in cell.acceptance_by_position[:POSITIONS]),
        )
        for cell in cells
        if cell.whole and cell.acceptance_by_position
    ]
    if rows:
        most = max(map(len, rows))
        columns = ("arm", "temp.", *map(str, range(1, most - 1)))
        whole = tuple(row + (DASH,) * (most - len(row)) for row in rows)
        yield Table("accepted by position in the chain", columns, whole)


def limits(cells: Sequence[Cell], baseline: str) -> Iterator[Table]:
    """What was predicted of each arm that drafts, on all tasks, and what limits it."""
    rows = []
    for cell in cells:
        found = cell.limits
        if not cell.whole or found is None or cell.arm == baseline:
            continue
        if found.drafted == 0 and cell.acceptance is None and found.host is None:
            continue
        measured = None if cell.speedup is None else cell.speedup.value
        rows.append(
            (
                cell.arm + (FORCED if cell.forced else ""),
                f"{cell.temperature:g}",
                number(found.predicted, "{:.2f}x"),
                number(measured, "{:.2f}x"),
                number(found.host, "{:.0%}"),
                found.sentence(measured),
            )
        )
    if rows:
        columns = ("arm", "temp.", "predicted", "measured", "host", "what limits it")
        yield Table("where the time went", columns, tuple(rows), worded=True)


def swept(record: Mapping[str, Any]) -> Iterator[Table]:
    """A table for each temperature: a row for each setting, columns for each series."""
    points = points_of(record)
    for temperature in sorted({point.temperature for point in points}):
        there = [point for point in points if point.temperature == temperature]
        series = list(dict.fromkeys(point.series for point in there))
        found = {(point.x, point.series): point for point in there}
        rows = []
        for x in dict.fromkeys(point.x for point in there):
            cells = [f"{x:g}" if isinstance(x, float) else str(x)]
            for name in series:
                point = found.get((x, name))
                ends = None if point is None or point.low is None else (point.low, point.high)
                cells += [
                    number(None if point is None else point.value, "{:.2f}x"),
                    DASH if ends is None else f"{ends[0]:.2f}-{ends[1]:.2f}",
                    number(None if point is None else point.tokens_per_pass, "{:.2f}"),
                ]
            rows.append(tuple(cells))
        columns = [record["sweep"]["over"]]
        for name in series:
            columns += [name, "95 %", "tok/pass"]
        title = f"temperature {temperature:g}: {record['sweep']['measure']}"
        yield Table(title, tuple(columns), tuple(rows))


def number(value: float | None, form: str) -> str:
    """A value, or a dash where there is none."""
    return DASH if value is None else form.format(value)


def interval(ratio: Ratio | None) -> str:
    """The interval of a ratio."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return DASH
    return f"{ratio.low:.2f}-{ratio.high:.2f}"


def equal(equality: Equality) -> str:
    """How many replies are the baseline's; near ties and differences apart."""
    if equality.compared == 0:
        return DASH
    said = f"{equality.equal}/{equality.compared}"
    if equality.near_ties:
        said += f", {equality.near_ties} near"
    if equality.differ:
        said += f", {equality.differ} DIFFER"
    return said


def _pair(cells: Sequence[Cell], group: str, arm: str) -> str:
    found = next((it for it in cells if it.group == group and it.arm == arm), None)
    if found is None or found.speedup is None:
        return DASH
    return f"{found.speedup.value:.2f}x {number(found.tokens_per_pass, '{:.2f}')}"


def _title(temperature: float, group: str) -> str:
    tail = "" if group == ALL else f", {group}"
    return f"temperature {temperature:g}{tail}"


def _escaped(text: str) -> str:
    return one_line(text).replace("|", "\\|")


Record = Mapping[str, Any]

SHOWN = 5
"""Replies that are not equal, of which each is told."""


def head(record: Record) -> Iterator[str]:
    """What was measured on what, in a few lines."""
    machine, models, protocol = record["machine"], record["models"], record["protocol"]
    versions = machine["versions"]
    memory = machine["memory_bytes"] / 2**30
    yield (
        f"{machine['chip']}, {machine['cores']} cores, {memory:.0f} GiB, MLX {versions['mlx']} on "
        f"{machine['backend']}, mlx-lm {versions['mlx-lm']}, macspec {versions['macspec']}"
    )
    draft = models["draft"]
    beside = "no draft model" if draft is None else f"draft {model_words(draft)}"
    yield one_line(f"target {model_words(models['target'])}; {beside}")
    questions = record["questions"]
    forced = sum(it["forced"] for it in questions)
    kinds = f", {forced} of them forced" if forced else ""
    ends = "" if protocol["end_of_text"] == "respected" else ", ends ignored"
    yield (
        f"{len(questions)} prompts{kinds}, {protocol['repeats']} repeats, seed {protocol['seed']}"
        f"{ends}; {machine_state(record)}"
    )
    if record["ended"] != "all":
        why = "the time was over" if record["ended"] == "time" else "INTERRUPTED"
        yield f"{why} after {record['replies']} of {record['replies_wanted']} replies"


def notes(record: Record) -> Iterator[str]:
    """What else there is to say, and how to read the tables."""
    for at, split in profiled(record):
        yield at
        yield from split
        yield ""
    for line in record.get("aa", ()):
        yield str(Held.from_dict(line))
    for said, count in record["not_answered"].items():
        yield one_line(f"{count} times not answered by {said}")
    yield from differing(record)
    reason = why_no_joules(record)
    if reason:
        yield one_line(f"no joules: {reason}")
    yield (
        f"vs plain: decode speed over that of {record['baseline']}, paired by prompt, with its "
        "95 % bootstrap interval"
    )
    if any(it["limits"] for it in record["cells"]):
        yield (
            "predicted: tokens a round over what such rounds cost when measured alone; host: the "
            "share of decode in which the device waited for it"
        )
    yield (
        "tok/s (decode), prefill (tok/s), TTFT and ITL are medians over the replies; tok/pass "
        "counts the target's own token"
    )
    yield (
        "decode begins behind the first pass and leaves out all that it brought: of a reply of "
        "few passes it says little; whole: the same ratio over whole replies, prefill included"
    )
    if any(it["equality"]["compared"] for it in record["cells"]):
        yield (
            "equal: greedy and keyed replies that are plain's token by token; near: they part "
            "where two tokens nearly tie"
        )
    if any(it["forced"] for it in record["questions"]):
        yield (
            "forced: decoded along a recorded answer, whatever the target says: it holds for "
            "look-ups and costs, not for a draft model's guesses"
        )


def profiled(record: Record) -> Iterator[tuple[str, list[str]]]:
    """The profile, if there is one: its title and its lines."""
    lines = [
        f"  {arm} at {temperature}: {it['round_ms']:.1f} ms = draft {it['draft_ms']:.1f} + verify "
        f"{it['verify_ms']:.1f} + host {it['host_ms']:.1f}, over {it['rounds']} rounds"
        for arm, by_temperature in record.get("profile", {}).items()
        for temperature, it in by_temperature.items()
    ]
    if lines:
        yield "a round, waiting for the device after each part", lines


def differing(record: Record) -> Iterator[str]:
    """The replies that part from the baseline's where rounding does not explain it."""
    forks = [it for it in record["forks"] if not it["near_tie"]]
    for it in forks[:SHOWN]:
        gap = "one reply ends there" if it["gap"] is None else f"gap {it['gap']:.3g}"
        yield one_line(
            f"NOT EQUAL: {it['arm']} on {it['question']} at {it['temperature']:g}, repeat "
            f"{it['repeat'] + 1}, parts at token {it['position']}: {gap}"
        )
    if len(forks) > SHOWN:
        yield f"NOT EQUAL: {len(forks) - SHOWN} more"


def why_no_joules(record: Record) -> str | None:
    """Why no arm has joules; None where one has."""
    if any(it["joules_per_token"] is not None for it in record["cells"]):
        return None
    reasons = (it["energy"]["reason"] for it in record["samples"] if it["energy"])
    said: str | None = record["energy_reason"]
    return said or next((reason for reason in reasons if reason), None)


def machine_state(record: Record) -> str:
    """On what power, how hot, how busy."""
    states = record["conditions"]
    supplies = dict.fromkeys(it["supply"] for it in states if it["supply"])
    thermal = dict.fromkeys(it["thermal"] for it in states if it["thermal"])
    said = [f"on {' then '.join(supplies)}"] if supplies else ["power supply not known"]
    said.append(f"thermal pressure {' then '.join(thermal) if thermal else 'not known'}")
    if record["load_before"]:
        said.append(f"load before {record['load_before'][0]:.2f}")
    return ", ".join(said)


def model_words(model: Mapping[str, Any]) -> str:
    """A model in a few words."""
    bits = model["quantization"]
    precision = f", {bits['bits']} bits" if isinstance(bits, dict) and "bits" in bits else ""
    revision = "" if model["revision"] is None else f"@{model['revision'][:7]}"
    return f"{model['name']}{revision} ({model['parameters'] / 1e6:,.1f}M parameters{precision})"


def page(record: Mapping[str, Any]) -> str:
    """The tables, and all that is said beside them."""
    cells = cells_of(record)
    parts = [
        "# macspec bench\n",
        f"{record['made']}\n",
        "```\n" + " ".join(record["command"]) + "\n```\n",
        "".join(f"- {line}\n" for line in head(record)),
    ]
    for group in (ALL, ALL + FORCED):
        parts += [table.markdown() for table in summary(cells, record["baseline"], group)]
    parts += [table.markdown() for table in by_workload(cells, record["baseline"])]
    parts += [table.markdown() for table in swept(record)]
    parts += [table.markdown() for table in positions(cells)]
    parts += [table.markdown() for table in limits(cells, record["baseline"])]
    parts.append("".join(f"- {line.strip()}\n" for line in notes(record) if line))
    return "\n".join(part for part in parts if part)
