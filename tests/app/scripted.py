"""An engine that says what it is told to, round by round, and always the same."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from macspec.choices import check_depth, check_method
from macspec.errors import MacspecError
from macspec.events import Emitted, Finished, Notice, Prefilled, Prefilling, Round, Text
from macspec.stats import ReplyCounter
from macspec.worker import (
    Call,
    EngineClient,
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    PairInfo,
    ReplyRequest,
    ScoreMargin,
    Status,
    Tuned,
    Tuning,
)
from macspec.worker.messages import (
    Answer,
    Command,
    CountTokens,
    MeasureMargin,
    PromptTokens,
    Tune,
)

PAIR = PairInfo(
    target="Qwen3-8B-4bit",
    draft="Qwen3-0.6B-4bit",
    draft_off=None,
    context=8192,
    weights=4_900_000_000,
    planned=6_500_000_000,
)

STATUS = Status(
    pair=PAIR,
    tuning=Tuning(),
    why="",
    cached_tokens=0,
    memory=5_400_000_000,
    memory_limit=17_179_869_184,
    kernels="macspec's own: 6 of 7 proved and faster",
    plain_seconds=1 / 22,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A round: tokens as texts, of which the first ``accepted`` were guesses."""

    tokens: tuple[str, ...]
    accepted: int = 0
    drafter: str | None = None
    depth: int = 0
    seconds: float = 0.05
    part: str = "answer"
    why: str = ""
    ids: tuple[int, ...] | None = None
    """Of the tokens; None: their places in the reply."""


@dataclass(frozen=True, slots=True)
class Script:
    """A reply."""

    steps: Sequence[Step]
    reason: str = "end"
    prompt_tokens: int = 24
    cached_tokens: int = 0
    ttft: float = 0.25
    dropped: int = 0
    prefilling: Sequence[int] = ()
    """Tokens read, each told before the first text."""
    notices: Sequence[str] = ()
    failure: Failed | None = None
    """What comes after the last step in place of an end."""


def said(
    text: str,
    *,
    drafter: str = "draft",
    depth: int = 4,
    pattern: Sequence[int] = (3, 1, 4, 0, 2),
    seconds: float = 0.06,
    part: str = "answer",
) -> list[Step]:
    """A text in rounds of words: as many guesses as the pattern says, then one of the target's."""
    words = re.findall(r"\s*\S+|\s+", text)
    steps, at = [], 0
    while at < len(words):
        stand = min(pattern[len(steps) % len(pattern)], depth)
        tokens = tuple(words[at : at + stand + 1])
        accepted = min(stand, len(tokens))
        why = f"{drafter} at depth {depth}: 2.00× plain expected"
        steps.append(Step(tokens, accepted, drafter, depth, seconds, part, why))
        at += len(tokens)
    return steps


def plain(text: str, seconds: float = 0.045, part: str = "answer") -> list[Step]:
    """The same without speculation."""
    why = "not drafting: speculation is off"
    words = re.findall(r"\s*\S+|\s+", text)
    return [Step((word,), seconds=seconds, part=part, why=why) for word in words]


@dataclass
class _Playing:
    """A reply that is under way."""

    call: Call
    script: Script
    left: deque[Step]
    counter: ReplyCounter = field(default_factory=ReplyCounter)
    now: float = 0.0
    text: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    begun: bool = False


class ScriptedEngine(EngineClient):
    """Replies with one script after the other; the last one again when there are no more.

    Args:
        replies: scripts, or the steps of one, or a text for ``said``.
        instant: whether a reply is there at once; else ``play`` brings it, round by round.
        loads: whether a load is done at once; else ``finish_load`` does it.
    """

    def __init__(
        self,
        *replies: Script | Sequence[Step] | str,
        instant: bool = False,
        loads: bool = True,
        pair: PairInfo = PAIR,
        status: Status = STATUS,
    ) -> None:
        self._replies = deque(map(_script, replies or ("Yes.",)))
        self._instant, self._loads = instant, loads
        self._pair, self._status = pair, status
        self._playing: _Playing | None = None
        self._load: tuple[Call, PairChoice] | None = None
        self.tuning = Tuning()
        self.requests: list[ReplyRequest] = []
        self.choices: list[PairChoice] = []
        self.loaded = False
        self.closed = False
        self.margins: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.margin: Answer = ScoreMargin(0.001, 0.25)
        """What is said of every choice."""

    # As an engine.

    def start(self) -> None:
        pass

    def ask(self, command: Command) -> Call:
        match command:
            case PairChoice() as choice:
                return self._begin_load(choice)
            case ReplyRequest():
                return self._begin_reply(command)
            case Tune(changes):
                return self._tune(changes)
            case MeasureMargin(_, said, tokens):
                self.margins.append((said, tokens))
                return _at_once(self.margin)
            case CountTokens(request):
                return _at_once(self._count(request))
        pair = self._pair if self.loaded else None
        return _at_once(replace(self._status, pair=pair, tuning=self.tuning))

    def interrupt(self) -> None:
        if self._playing is not None:
            self._stop()

    def close(self) -> None:
        self.closed = True

    def _begin_load(self, choice: PairChoice) -> Call:
        call = Call(Loaded, lambda: call.put(Failed("stopped", "it was stopped")))
        self.choices.append(choice)
        self._load = call, choice
        call.put(LoadProgress("finding"))
        if self._loads:
            self.finish_load()
        return call

    def _begin_reply(self, request: ReplyRequest) -> Call:
        self.requests.append(request)
        script = self._replies[0]
        if len(self._replies) > 1:
            self._replies.popleft()
        call = Call(Finished, self._stop)
        self._playing = _Playing(call, script, deque(script.steps))
        if self._instant:
            self.play_all()
        return call

    def _tune(self, changes: Mapping[str, Any]) -> Call:
        try:
            check_method(changes.get("method", "auto"))
            check_depth(changes.get("depth", "auto"))
        except MacspecError as error:
            return _at_once(Failed("refused", str(error)), Tuned)
        if changes.get("sampling", {}).get("temperature", 0) > 100:
            return _at_once(Failed("refused", "temperature must be 0, or at most 100"), Tuned)
        sampling = {**self.tuning.sampling, **changes.get("sampling", {})}
        self.tuning = replace(self.tuning, **{**changes, "sampling": sampling})
        return _at_once(Tuned(self.tuning))

    # As a script.

    @property
    def playing(self) -> bool:
        """Whether a reply is under way."""
        return self._playing is not None

    def finish_load(self, failure: Failed | None = None) -> None:
        """End the load that is under way."""
        assert self._load is not None
        (call, _), self._load = self._load, None
        if failure is None:
            self.loaded = True
            call.put(LoadProgress("reading", self._pair.weights, self._pair.weights))
            call.put(Loaded(self._pair))
        else:
            call.put(failure)

    def load_progress(self, stage: str, done: int, total: int, model: str = "") -> None:
        """A step of the load that is under way."""
        assert self._load is not None
        self._load[0].put(LoadProgress(stage, done, total, model))

    def play(self, rounds: int = 1) -> None:
        """Play so many rounds of the reply; after the last one it ends."""
        for _ in range(rounds):
            playing = self._playing
            if playing is None:
                return
            self._begin(playing)
            if playing.left:
                self._round(playing, playing.left.popleft())
            if not playing.left:
                self._finish(playing, playing.script.failure)

    def play_all(self) -> None:
        """Play what is left of the reply."""
        while self._playing is not None:
            self.play()

    def crash(self, how: str = "it was killed by SIGKILL") -> None:
        """Lose the engine in the middle of a reply."""
        assert self._playing is not None
        kept = "the text so far is kept, and the next message restarts it"
        self._finish(self._playing, Failed("crashed", f"the engine stopped: {how}; {kept}"))

    def _count(self, request: ReplyRequest) -> PromptTokens:
        """A word is a token, and a message has two of its own."""
        sizes = [len(message["content"].split()) + 2 for message in request.messages]
        return PromptTokens(sizes[-1] - 2, sum(sizes), sizes[-1], self._pair.context)

    def _stop(self) -> None:
        if self._playing is not None:
            self._playing.script = replace(self._playing.script, reason="interrupted")
            self._finish(self._playing, None)

    def _begin(self, playing: _Playing) -> None:
        if playing.begun:
            return
        playing.begun = True
        script, counter = playing.script, playing.counter
        counter.prompt_tokens, counter.cached_tokens = script.prompt_tokens, script.cached_tokens
        counter.dropped_messages = script.dropped
        counter.plain_seconds = self._status.plain_seconds
        for notice in script.notices:
            playing.call.put(Notice(notice))
        for done in script.prefilling:
            playing.call.put(Prefilling(done, script.prompt_tokens))

    def _round(self, playing: _Playing, step: Step) -> None:
        script, counter, call = playing.script, playing.counter, playing.call
        first = counter.passes == 0
        seconds = script.ttft if first else step.seconds
        playing.now += seconds
        drafted = step.depth if step.drafter is not None else 0
        count = len(step.tokens)
        drafted = min(drafted, count) if count <= step.accepted else drafted
        counter.add(count, seconds, drafted=drafted, accepted=step.accepted)
        if first:
            call.put(Prefilled(script.prompt_tokens, script.cached_tokens, seconds, script.dropped))
        origins = [step.drafter if n < step.accepted else None for n in range(count)]
        ids = step.ids or tuple(range(len(playing.ids), len(playing.ids) + count))
        tokens = tuple(map(Emitted, ids, origins))
        spans = tuple((len(text), who) for text, who in zip(step.tokens, origins, strict=True))
        playing.ids += ids
        playing.text += step.tokens
        call.put(Text("".join(step.tokens), tokens, spans, step.part))
        call.put(
            Round(
                ids,
                step.drafter,
                step.depth,
                drafted,
                step.accepted,
                seconds,
                0.0,
                1.0,
                step.why,
            )
        )

    def _finish(self, playing: _Playing, failure: Failed | None) -> None:
        self._playing = None
        tuning = self.tuning
        if failure is not None:
            playing.call.put(failure)
            return
        if not playing.begun and playing.script.reason == "interrupted":
            playing.call.put(Failed("stopped", "stopped before it finished"))
            return
        playing.call.put(
            Finished(
                playing.script.reason,
                "".join(playing.text),
                tuple(playing.ids),
                7,
                tuning.rule,
                tuning.method,
                tuning.depth,
                playing.counter.stats(),
            )
        )


def _script(reply: Script | Iterable[Step] | str) -> Script:
    if isinstance(reply, Script):
        return reply
    return Script(said(reply) if isinstance(reply, str) else list(reply))


def _at_once(answer: Answer, end: type[Answer] | None = None) -> Call:
    call = Call(end or type(answer))
    call.put(answer)
    return call
