"""``macspec run``: one reply to one prompt."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..device import prepare
from ..events import Event, Finished, Notice, Text
from ..kernels import kernels_for
from ..models import load_pair
from ..power import awake
from ..remembered import corpus, ledger
from ..sampling import Sampling
from ..session import Session
from .energy import Gauge
from .interrupt import interruptible, status_of
from .output import Output, say, show
from .saving import Conversation
from .table import statistics_table


def run(options: argparse.Namespace) -> int:
    """Answer ``options.prompt`` and return the exit status."""
    sampling = sampling_of(options)
    output = Output()
    gauge = Gauge(options.stats or options.json, options.settings.power.source)
    prepare()
    pair = load_pair(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
        require_draft=options.method == "draft",
    )
    kernels = kernels_for(pair, options.kernels)
    session = Session(
        pair,
        method=options.method,
        depth=options.depth,
        rule=options.accept,
        kv_bits=options.kv_bits,
        ledger=ledger(pair, options.kv_bits, kernels=kernels.key) if options.learn else None,
        corpus=corpus(pair) if options.learn else None,
        kernels=kernels,
    )
    show_event = _JsonLines(output, gauge) if options.json else _Plain(output)
    for notice in pair.notices:
        show_event(Notice(notice))

    status = 0
    conversation: Conversation = options.conversation
    told: str | None = None
    try:
        gauge.begin()
        with interruptible(), awake(options.settings.power.keep_awake):
            events = session.reply(
                conversation.messages(),
                sampling,
                max_tokens=options.max_tokens,
                stop=options.stop,
                raw=options.raw,
                think=None if options.think is None else options.think == "on",
                on_overflow="drop" if conversation.continues else "refuse",
            )
            conversation.begin(sampling)
            told = conversation.trouble
            if told is not None:
                show_event(Notice(told))
            for event in events:
                gauge.see(event)
                conversation.take(event)
                show_event(event)
            conversation.end(session.finished, energy=gauge.result())
    except KeyboardInterrupt as interrupt:
        status = status_of(interrupt)
        session.close()
        conversation.end(session.finished)
        if session.finished is not None:
            show_event(session.finished)
    except BaseException:
        session.close()
        conversation.end(session.finished, broken=True)
        raise
    finally:
        conversation.close()
    output.end()
    if conversation.trouble is not None and told is None:
        say(conversation.trouble)
    session.remember()
    if options.stats and session.finished is not None:
        show("\n" + statistics_table(session.finished, gauge.result()))
    gauge.close()
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

    def __init__(self, output: Output, gauge: Gauge) -> None:
        self._output, self._gauge = output, gauge

    def __call__(self, event: Event) -> None:
        fields = asdict(event)
        if isinstance(event, Finished):
            fields.update(fields.pop("stats"), energy=self._gauge.record())
        self._output.json({"event": type(event).__name__.lower(), **fields})
