"""``macspec run``: one reply to one prompt."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..device import prepare
from ..events import Event, Finished, Notice, Text
from ..models import load_pair
from ..remembered import corpus, ledger
from ..sampling import Sampling
from ..session import Session
from .interrupt import INTERRUPTED, interruptible
from .output import Output, say, show
from .table import statistics_table


def run(options: argparse.Namespace) -> int:
    """Answer ``options.prompt`` and return the exit status."""
    sampling = sampling_of(options)
    output = Output()
    prepare()
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
        require_draft=options.method == "draft",
    )
    session = Session(
        pair,
        method=options.method,
        depth=options.depth,
        rule=options.accept,
        kv_bits=options.kv_bits,
        ledger=ledger(pair, options.kv_bits) if options.learn else None,
        corpus=corpus(pair) if options.learn else None,
    )
    show_event = _JsonLines(output) if options.json else _Plain(output)
    for notice in pair.notices:
        show_event(Notice(notice))

    status = 0
    try:
        with interruptible():
            for event in session.reply(
                messages_of(options),
                sampling,
                max_tokens=options.max_tokens,
                stop=options.stop,
                raw=options.raw,
                think=None if options.think is None else options.think == "on",
                on_overflow="refuse",
            ):
                show_event(event)
    except KeyboardInterrupt:
        status = INTERRUPTED
        session.close()
        if session.finished is not None:
            show_event(session.finished)
    except BaseException:
        session.close()
        raise
    output.end()
    session.remember()
    if options.stats and session.finished is not None:
        show("\n" + statistics_table(session.finished))
    return status


def sampling_of(options: argparse.Namespace) -> Sampling:
    """The sampling settings of a command line."""
    return Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        seed=options.seed,
    )


def messages_of(options: argparse.Namespace) -> str | list[dict[str, str]]:
    """The conversation of a command line; a raw prompt stays text."""
    if options.raw:
        return str(options.prompt)
    system = [{"role": "system", "content": options.system}] if options.system else []
    return [*system, {"role": "user", "content": options.prompt}]


class _Plain:
    """Text to standard output as it comes, notices to standard error."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, event: Event) -> None:
        if isinstance(event, Text):
            self._output.text(event.delta)
        elif isinstance(event, Notice):
            self._output.end()
            say(event.message)


class _JsonLines:
    """Every event as a JSON object on a line; the last one is flat and has the statistics."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, event: Event) -> None:
        fields = asdict(event)
        if isinstance(event, Finished):
            fields.update(fields.pop("stats"))
        self._output.json({"event": type(event).__name__.lower(), **fields})
