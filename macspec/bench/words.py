"""What a report says beside its tables: what was measured, and what limits each arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..plaintext import one_line
from .aa import Held

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
