"""``macspec run``: one reply to one prompt."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from functools import partial

from ..choices import think_named
from ..config.schema import section
from ..events import Event, Finished, Notice, Text, between_rounds
from ..models.pair import BUILT_IN
from ..models.progress import Progress
from ..parts import REASONING, TAG
from ..power import Meter, ReplyEnergy, ReplyWatch, awake, choose, remembered_idle
from ..sampling import Sampling
from ..store import one_shots
from ..terminal import Output, ProgressLine, interruptible, say, show, status_of
from ..worker.engine import Engine
from ..worker.messages import Answer, LoadProgress, PairChoice, ReplyRequest
from ..worker.waiting import WaitingEngine
from .models import show_download
from .saving import Conversation
from .table import DASH, Table, number

ENDS = {
    "end": "the model",
    "stop": "a stop text",
    "length": "--max-tokens",
    "context": "the end of the context",
    "interrupted": "an interrupt",
}


def run(options: argparse.Namespace, conversation: Conversation) -> int:
    sampling = Sampling(**{name: getattr(options, name) for name in section("sampling")})
    output = Output()
    gauge = Gauge(options.stats or options.json, options.settings.power.source)
    show_event = partial(_json_line, output, gauge) if options.json else _Plain(output)
    # A reply on several machines must not be interrupted between two messages to them, and one by
    # kernels goes on in another process if this one loses the GPU.
    apart = options.hosts is not None or sys.platform == "darwin"
    engine: Engine | WaitingEngine = WaitingEngine() if apart else Engine()
    engine.load(_pair(options), _loading(show_event))
    chosen = {name: getattr(options, name) for name in ("method", "depth", "rule")}
    engine.tune({**chosen, "sampling": asdict(sampling)})

    status = 0
    events: Iterator[Event] | None = None
    event: Event | None = None
    trouble: str | None = None
    finished: Finished | None = None
    try:
        gauge.begin()
        with interruptible(), awake(options.settings.power.keep_awake):
            reply = engine.reply(_request(options, conversation))
            conversation.begin(sampling)
            trouble = conversation.trouble
            if trouble is not None:
                show_event(Notice(trouble))
            events = reply
            for event in events:
                gauge.see(event)
                conversation.take(event)
                show_event(event)
            finished = engine.stop()
            conversation.end(finished, energy=gauge.result())
    except KeyboardInterrupt as interrupt:
        status = status_of(interrupt)
        finished = _stopped(engine, events, event)
        conversation.end(finished)
        if finished is not None:
            show_event(finished)
    except BaseException:
        conversation.end(_stopped(engine, events, event), broken=True)
        raise
    finally:
        conversation.close()
        output.end()
        engine.close()
    if conversation.trouble is not None and trouble is None:
        say(conversation.trouble)
    if options.stats and finished is not None:
        show("\n" + statistics_table(finished, gauge.result()))
    gauge.close()
    return status


def _pair(options: argparse.Namespace) -> PairChoice:
    given = {**vars(options), "require_draft": options.method == "draft"}
    return PairChoice(**{each.name: given[each.name] for each in fields(PairChoice)})


def _request(options: argparse.Namespace, conversation: Conversation) -> ReplyRequest:
    messages = conversation.messages()
    return ReplyRequest(
        messages if isinstance(messages, str) else tuple(messages),
        max_tokens=options.max_tokens,
        stop=tuple(options.stop),
        raw=options.raw,
        think=think_named(options.think),
        on_overflow="drop" if conversation.continues else "refuse",
    )


def _stopped(
    engine: Engine | WaitingEngine, events: Iterator[Event] | None, newest: Event | None
) -> Finished | None:
    """End a reply after its round and return how it ended; None if none has begun."""
    if events is None:
        return None
    while newest is not None and not between_rounds(newest):
        newest = next(events, None)
    return engine.stop()


def _loading(show_event: Callable[[Answer], None]) -> Callable[[Answer], None]:
    """Shows the notices of a load, and downloads as a bar. How to get a real pair is said once."""
    bar, knows = ProgressLine(), bool(one_shots())

    def see(event: Answer) -> None:
        if isinstance(event, LoadProgress) and event.stage == "downloading":
            show_download(bar, Progress(event.model, "", event.done, event.total, rate=0.0))
            return
        bar.end()
        if isinstance(event, Notice) and not (knows and event.message.startswith(BUILT_IN)):
            show_event(event)

    return see


class _Plain:
    """Writes text to standard output as it comes, notices to standard error.

    A model's own tags for its reasoning are written, too; for headers of messages, which nobody
    wants to read, ``<think>`` and ``</think>``.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._header = self._reasons = False

    def __call__(self, event: Answer) -> None:
        if isinstance(event, Text):
            self._output.text(self._written(event))
        elif isinstance(event, Notice):
            self._output.end()
            say(event.message)

    def _written(self, event: Text) -> str:
        if event.part == TAG:
            self._header |= "<|message|>" in event.delta
            return "" if self._header else event.delta
        mark, reasons = "", event.part == REASONING
        if self._header and event.delta and reasons != self._reasons:
            self._reasons = reasons
            mark = "<think>\n" if reasons else "\n</think>\n\n"
        return mark + event.delta


def _json_line(output: Output, gauge: Gauge, event: Answer) -> None:
    """Write an event as a JSON object on a line; the last one has the statistics."""
    record = asdict(event)
    if isinstance(event, Finished):
        energy = gauge.result()
        record.update(record.pop("stats"), energy=energy and energy.as_dict())
        record["accept_rule"] = event.rule  # the old spelling of the key
    output.json({"event": type(event).__name__.lower(), **record})


class Gauge:
    """Measures the energy of one reply, if that is wanted, by the setting ``power.source``.

    Make it early: finding a source takes a moment.
    """

    def __init__(self, wanted: bool, source: str = "auto") -> None:
        self._meter = Meter(lambda: choose(source), idle=remembered_idle()) if wanted else None
        self._watch: ReplyWatch | None = None
        if self._meter is not None:
            self._meter.start()

    def begin(self) -> None:
        if self._meter is not None:
            self._watch = ReplyWatch(self._meter)

    def see(self, event: Event) -> None:
        if self._watch is not None:
            self._watch.see(event)

    def result(self) -> ReplyEnergy | None:
        """The energy, after a few seconds of waiting at most; None if it was not wanted."""
        if self._watch is None:
            return None
        self._watch.end()
        self._watch.settle()
        return self._watch.result()

    def close(self) -> None:
        if self._meter is not None:
            self._meter.stop()


def statistics_table(finished: Finished, energy: ReplyEnergy | None = None) -> str:
    """Aligned lines of label and value; a dash where there is nothing to count."""
    stats = finished.stats
    if energy is not None and energy.jumped:
        stats = replace(stats, itl_ms_median=None, itl_ms_p95=None)
    predicted = stats.predicted_speedup
    plain = "" if predicted is None else f"predicted {predicted:.2f}x"
    share = f"{stats.accepted} of {stats.drafted} drafted" if stats.drafted else ""
    cached = f"{stats.cached_tokens} of {stats.prompt_tokens} prompt tokens were cached"
    rows = [
        ("acceptance", number(stats.acceptance, "{:.3f}"), share),
        ("  by position", " ".join(f"{a:.2f}" for a in stats.acceptance_by_position) or DASH, ""),
        ("tokens per pass", number(stats.tokens_per_pass, "{:.2f}"), f"{stats.passes} passes"),
        ("time to first token", number(stats.ttft_s, "{:.3f} s"), ""),
        ("inter-token latency", number(stats.itl_ms_median, "{:.1f} ms"), "median"),
        ("", number(stats.itl_ms_p95, "{:.1f} ms"), "95th percentile"),
        ("decode", number(stats.decode_tokens_per_s, "{:.1f} tok/s"), ""),
        ("speed-up over plain", number(stats.measured_speedup, "{:.2f}x"), plain),
        ("prefill", number(stats.prefill_tokens_per_s, "{:.1f} tok/s"), cached),
        ("tokens", str(stats.tokens), f"ended by {ENDS.get(finished.reason, finished.reason)}"),
        ("seconds", f"{stats.seconds.wall:.3f}", f"device idle {stats.seconds.device_idle:.3f}"),
        *([] if energy is None else [("energy", *_energy(energy))]),
        ("acceptance rule", finished.rule, ""),
        ("method", finished.method, f"depth {finished.depth}"),
        ("seed", str(finished.seed), ""),
    ]
    return Table("", (), rows, left=None, indent=0).text().rstrip("\n")


def _energy(energy: ReplyEnergy) -> tuple[str, str]:
    """Joules per token of the decode, and what they are of, or why there are none."""
    decode = energy.decode
    gross, net = decode.joules_per_token, decode.net_joules_per_token
    if gross is None or decode.watts is None:
        return DASH, decode.reason or "no token was decoded"
    above = "no idle baseline is known" if net is None else f"{net:.3g} J above idle"
    return f"{gross:.3g} J/token", f"{decode.watts:.1f} W of {decode.of}, {decode.basis}; {above}"
