"""A report as blocks of lines and tables, rendered for a terminal or as a Markdown page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..cli.table import DASH, Table, number
from ..models.sidecars import label
from ..plaintext import one_line
from .cells import ALL, FORCED, Cell, Ratio
from .document import cells_of
from .equality import Equality
from .sweeps import Point, points_of
from .verdict import verdict

Record = Mapping[str, Any]

Block = Sequence[str] | Table
"""Lines, or a table."""

POSITIONS = 16
"""Most positions of a chain that are shown."""

SHOWN = 5
"""Replies that are not equal, of which each is shown."""


def terminal(blocks: Iterable[Block], width: int | None = None) -> str:
    """Blocks for a terminal so wide, an empty line between two."""
    texts = (
        it.text(width) if isinstance(it, Table) else "".join(_lines(it, width)) for it in blocks
    )
    return "\n".join(text for text in texts if text)


def _lines(block: Sequence[str], width: int | None) -> Iterator[str]:
    for line in block:
        for part in [line] if width is None else textwrap.wrap(line, width, subsequent_indent="  "):
            yield f"{part}\n"


def markdown(blocks: Iterable[Block]) -> str:
    """Blocks as Markdown: lines become a list."""
    texts = (
        it.markdown()
        if isinstance(it, Table)
        else "".join(f"- {line.strip()}\n" for line in it if line)
        for it in blocks
    )
    return "\n".join(text for text in texts if text)


def page(record: Record) -> str:
    """A report as a Markdown page."""
    command = " ".join(record["command"])
    return (
        f"# macspec bench\n\n{record['made']}\n\n```\n{command}\n```\n\n{markdown(blocks(record))}"
    )


def blocks(record: Record) -> Iterator[Block]:
    """What was measured, all tables, and how to read them."""
    cells, baseline = cells_of(record), record["baseline"]
    yield list(head(record))
    for group in (ALL, ALL + FORCED):
        yield from summary(cells, baseline, group)
    yield from by_workload(cells, baseline)
    yield from swept(record)
    yield from positions(cells)
    yield from limits(cells, baseline)
    yield list(notes(record))
    if said := verdict(cells, baseline):
        yield [said]


def summary(cells: Sequence[Cell], baseline: str, group: str = ALL) -> Iterator[Table]:
    """A table for each temperature: all arms on one group of tasks."""
    columns = (
        "arm", "tok/s", f"vs {baseline}", "95%", "whole", "tok/pass", "accepted", "prefill",
        "TTFT ms", "ITL ms", "p95", "J/token", "equal",
    )  # fmt: skip
    for temperature in sorted({cell.temperature for cell in cells}):
        members = [it for it in cells if it.group == group and it.temperature == temperature]
        rows = tuple(
            (
                it.arm,
                number(it.decode_tokens_per_s, "{:.1f}"),
                *ratio_columns(it.speedup, interval=it.arm != baseline),
                ratio_columns(it.whole_speedup)[0],
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
            tail = "" if group == ALL else f", {group}"
            yield Table(f"temperature {temperature:g}{tail}", columns, rows)


def by_workload(cells: Sequence[Cell], baseline: str) -> Iterator[Table]:
    """A table for each temperature: speed-up and tokens per pass of every arm by workload."""
    for temperature in sorted({cell.temperature for cell in cells}):
        there = [it for it in cells if it.temperature == temperature]
        arms = [arm for arm in dict.fromkeys(it.arm for it in there) if arm != baseline]
        rows = tuple(
            (group, *(_pair(there, group, arm) for arm in arms))
            for group in dict.fromkeys(it.group for it in there)
            if group not in (ALL, ALL + FORCED)
        )
        if len(rows) > 1 and arms:
            title = f"temperature {temperature:g}: times {baseline}, and tokens per pass"
            yield Table(title, ("workload", *arms), rows)


def positions(cells: Sequence[Cell]) -> Iterator[Table]:
    """How often drafted tokens are accepted, by position in the chain, on all tasks."""
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
        if found.drafted_per_round == 0 and cell.acceptance is None and found.host_share is None:
            continue
        measured = None if cell.speedup is None else cell.speedup.value
        rows.append(
            (
                cell.arm + (FORCED if cell.forced else ""),
                f"{cell.temperature:g}",
                number(found.predicted_speedup, "{:.2f}x"),
                number(measured, "{:.2f}x"),
                number(found.host_share, "{:.0%}"),
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
                tokens = None if point is None else point.tokens_per_pass
                cells += [*ratio_columns(point), number(tokens, "{:.2f}")]
            rows.append(tuple(cells))
        columns = [record["sweep"]["over"]]
        for name in series:
            columns += [name, "95%", "tok/pass"]
        title = f"temperature {temperature:g}: {record['sweep']['measure']}"
        yield Table(title, tuple(columns), tuple(rows))


def ratio_columns(ratio: Ratio | Point | None, *, interval: bool = True) -> tuple[str, str]:
    """A ratio and its interval, or dashes."""
    if ratio is None:
        return DASH, DASH
    known = interval and ratio.low is not None and ratio.high is not None
    return f"{ratio.value:.2f}x", f"{ratio.low:.2f}-{ratio.high:.2f}" if known else DASH


def equal(equality: Equality) -> str:
    """How many replies are the baseline's; near ties and differences apart."""
    if equality.compared == 0:
        return DASH
    near = f", {equality.near_ties} near" if equality.near_ties else ""
    differ = f", {equality.differ} DIFFER" if equality.differ else ""
    return f"{equality.equal}/{equality.compared}{near}{differ}"


def _pair(cells: Sequence[Cell], group: str, arm: str) -> str:
    found = next((it for it in cells if it.group == group and it.arm == arm), None)
    if found is None or found.speedup is None:
        return DASH
    return f"{found.speedup.value:.2f}x {number(found.tokens_per_pass, '{:.2f}')}"


def head(record: Record) -> Iterator[str]:
    """What was measured on what, in a few lines."""
    machine, models, protocol = record["machine"], record["models"], record["protocol"]
    yield setup_words(machine, memory=True)
    draft, own = models["draft"], models.get("head")
    beside = "no draft model" if draft is None else f"draft {model_words(draft)}"
    if own is not None:
        words = f"{label(own['kind'])} {own['name']}"
        beside = words if draft is None else f"{beside}, {words}"
    yield one_line(f"target {model_words(models['target'])}; {beside}")
    questions = record["questions"]
    forced = sum(it["forced"] for it in questions)
    kinds = f", {forced} of them forced" if forced else ""
    ends = "" if protocol["end_of_text"] == "respected" else ", ends ignored"
    yield (
        f"prompts: {len(questions)}{kinds}, repeats: {protocol['repeats']}, seed {protocol['seed']}"
        f"{ends}; {machine_state(record)}"
    )
    if record["ended"] != "all":
        why = "time limit reached" if record["ended"] == "time" else "INTERRUPTED"
        yield f"{why} ({record['replies']} of {record['replies_wanted']} replies)"


def notes(record: Record) -> Iterator[str]:
    """What else there is to say, and how to read the tables."""
    yield from profiled(record)
    yield from map(null_test_words, record.get("aa", ()))
    for why, count in record["not_answered"].items():
        yield one_line(f"{count} times not answered by {why}")
    yield from differing(record)
    if reason := why_no_joules(record):
        yield one_line(f"energy not measured: {reason}")
    yield (
        f"vs plain: decode speed over that of {record['baseline']}, paired by prompt, with its "
        "95% bootstrap interval"
    )
    if any(it["limits"] for it in record["cells"]):
        yield (
            "predicted: tokens per round over the measured cost of such rounds; host: the share of "
            "decode in which the device waited for the host"
        )
    yield (
        "tok/s (decode), prefill (tok/s), TTFT and ITL are medians over the replies; tok/pass "
        "counts the target's own token"
    )
    yield (
        "decode speed excludes the first pass, so it says little about a "
        "reply of few passes; whole: the same ratio over whole replies, prefill included"
    )
    if any(it["equality"]["compared"] for it in record["cells"]):
        yield (
            "equal: greedy and keyed replies that match plain's token by token; near: they diverge "
            "where two tokens nearly tie"
        )
    if any(it["forced"] for it in record["questions"]):
        yield (
            "forced: decoded along a recorded answer, whatever the target would write: valid for "
            "look-ups and costs, not for a draft model's guesses"
        )


def profiled(record: Record) -> Iterator[str]:
    """The profile, if there is one."""
    for arm, by_temperature in record.get("profile", {}).items():
        for temperature, it in by_temperature.items():
            yield (
                f"profile of {arm} at {temperature}: {it['round_ms']:.1f} ms per round = draft "
                f"{it['draft_ms']:.1f} + verify {it['verify_ms']:.1f} + host {it['host_ms']:.1f}, "
                f"over {it['rounds']} rounds, waiting for the device after each part"
            )


def null_test_words(it: Record) -> str:
    """How often the interval of an arm against itself held 1.00."""
    where = f"temperature {it['temperature']:g}{', forced' if it['forced'] else ''}"
    if not it["ratios"]:
        return f"{where}: too few replies for an interval"
    values = [ratio["value"] for ratio in it["ratios"]]
    return (
        f"{where}: 1.00 is in the interval in {it['held']} of {it['runs']} runs; the ratios are "
        f"{min(values):.3f} to {max(values):.3f}"
    )


def differing(record: Record) -> Iterator[str]:
    """The replies that diverge from the baseline's where rounding does not explain it."""
    forks = [it for it in record["forks"] if not it["near_tie"]]
    for it in forks[:SHOWN]:
        gap = "one reply ends there" if it["gap"] is None else f"gap {it['gap']:.3g}"
        yield one_line(
            f"NOT EQUAL: {it['arm']} on {it['question']} at {it['temperature']:g}, repeat "
            f"{it['repeat'] + 1}, diverges at token {it['position']}: {gap}"
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


def setup_words(machine: Record, *, memory: bool = False) -> str:
    """Machine and programs in a few words."""
    versions = machine["versions"]
    size = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if memory else ""
    return (
        f"{machine['chip']}, {machine['cores']} cores{size}, MLX {versions['mlx']} on "
        f"{machine['backend']}, mlx-lm {versions['mlx-lm']}, macspec {versions['macspec']}"
    )
