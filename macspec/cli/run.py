"""``macspec run``: one reply to one prompt."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import cast

from ..errors import MacspecError
from ..events import Event, Finished, Notice, ReplyStats, Text
from ..models.progress import Progress
from ..power import ReplyEnergy, awake
from ..sampling import Sampling
from ..terminal import Output, interruptible, say, show, status_of
from ..worker.call import Call
from ..worker.inprocess import InProcessEngine
from ..worker.messages import Answer, Failed, LoadProgress, PairChoice, ReplyRequest
from .energy import Gauge
from .progressbar import ProgressBar
from .saving import Conversation
from .table import DASH, Table, number

ENDS = {
    "end": "the model",
    "stop": "a stop text",
    "length": "--max-tokens",
    "context": "the end of the context",
    "interrupted": "an interrupt",
}


def run(options: argparse.Namespace) -> int:
    """Answer ``options.prompt`` and return the exit status."""
    sampling = sampling_of(options)
    output = Output()
    gauge = Gauge(options.stats or options.json, options.settings.power.source)
    show_event = _JsonLines(output, gauge) if options.json else _Plain(output)
    engine = InProcessEngine(told=_Loading(show_event))
    _done(engine.load(_pair(options)))
    _done(
        engine.tune(
            method=options.method,
            depth=options.depth,
            rule=options.rule,
            sampling=asdict(sampling),
        )
    )

    status = 0
    conversation: Conversation = options.conversation
    call: Call | None = None
    told: str | None = None
    finished: Finished | None = None
    try:
        gauge.begin()
        with interruptible(), awake(options.settings.power.keep_awake):
            call = engine.reply(_request(options, conversation))
            if call.done:
                _done(call)
            conversation.begin(sampling)
            told = conversation.trouble
            if told is not None:
                show_event(Notice(told))
            for event in call:
                if isinstance(event, Failed):
                    raise MacspecError(event.message)
                gauge.see(cast(Event, event))
                conversation.take(cast(Event, event))
                show_event(event)
            finished = _ended(call)
            conversation.end(finished, energy=gauge.result())
    except KeyboardInterrupt as interrupt:
        status = status_of(interrupt)
        finished = _ended(call)
        conversation.end(finished)
        if finished is not None:
            show_event(finished)
    except BaseException:
        conversation.end(_ended(call), broken=True)
        raise
    finally:
        conversation.close()
        output.end()
        engine.close()
    if conversation.trouble is not None and told is None:
        say(conversation.trouble)
    if options.stats and finished is not None:
        show("\n" + statistics_table(finished, gauge.result()))
    gauge.close()
    return status


def _pair(options: argparse.Namespace) -> PairChoice:
    return PairChoice(
        options.target,
        options.draft,
        context=options.context,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
        require_draft=options.method == "draft",
        learn=options.learn,
        kernels=options.kernels,
    )


def _request(options: argparse.Namespace, conversation: Conversation) -> ReplyRequest:
    messages = conversation.messages()
    return ReplyRequest(
        messages if isinstance(messages, str) else tuple(messages),
        max_tokens=options.max_tokens,
        stop=tuple(options.stop),
        raw=options.raw,
        think=None if options.think is None else options.think == "on",
        on_overflow="drop" if conversation.continues else "refuse",
    )


def _done(call: Call) -> None:
    """Wait for the answer.

    Raises:
        MacspecError: it came to nothing.
    """
    answer = call.result()
    if isinstance(answer, Failed):
        raise MacspecError(answer.message)


def _ended(call: Call | None) -> Finished | None:
    """How a reply ended, which is now if it is still going on; None if it never began."""
    if call is None:
        return None
    call.stop()
    answer = call.result()
    return answer if isinstance(answer, Finished) else None


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


class _Loading:
    """Shows what a load says, downloads as a bar."""

    def __init__(self, show_event: Callable[[Answer], None]) -> None:
        self._show, self._bar = show_event, ProgressBar()

    def __call__(self, event: Answer) -> None:
        if isinstance(event, LoadProgress) and event.stage == "downloading":
            self._bar.show(Progress(event.model, "", event.done, event.total, rate=0.0))
            return
        self._bar.end()
        if isinstance(event, Notice):
            self._show(event)


class _Plain:
    """Text to standard output as it comes, notices to standard error."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, event: Answer) -> None:
        if isinstance(event, Text):
            self._output.text(event.delta)
        elif isinstance(event, Notice):
            self._output.end()
            say(event.message)


class _JsonLines:
    """Every event as a JSON object on a line; the last one is flat and has the statistics."""

    def __init__(self, output: Output, gauge: Gauge) -> None:
        self._output, self._gauge = output, gauge

    def __call__(self, event: Answer) -> None:
        fields = asdict(event)
        if isinstance(event, Finished):
            fields.update(fields.pop("stats"), energy=self._gauge.record())
            fields["accept_rule"] = event.rule  # the old spelling of the key
        self._output.json({"event": type(event).__name__.lower(), **fields})


def statistics_table(finished: Finished, energy: ReplyEnergy | None = None) -> str:
    """Aligned lines of label and value; a dash where there is nothing to count.

    Args:
        energy: what the reply took, if that is to be said.
    """
    stats = finished.stats
    if energy is not None and energy.jumped:
        stats = replace(stats, itl_ms_median=None, itl_ms_p95=None)
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
        ("speed-up over plain", number(stats.measured_speedup, "{:.2f}x"), _predicted(stats)),
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


def _predicted(stats: ReplyStats) -> str:
    return "" if stats.predicted_speedup is None else f"predicted {stats.predicted_speedup:.2f}x"
