"""The engine itself, in whatever process it runs: a session that can change its pair."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any

import mlx.core as mx

from ..choices import MODELS
from ..errors import BadOptionError, GpuLostError, MacspecError, OutOfMemoryError
from ..events import Event, Finished, Notice
from ..hosts import group
from ..kernels import Kernels
from ..learned import control_state, corpus
from ..metal.self_check import Checking
from ..metal.start import kernels_for
from ..models.download import pull
from ..models.hubcache import cached_folder
from ..models.machine import Pressure, pressure
from ..models.memory import device_limit, gigabytes
from ..models.pair import Pair, load_pair
from ..models.progress import Progress, Retrying
from ..sampling import Sampling
from ..session import Session
from ..settings import Settings
from .messages import (
    Loaded,
    LoadProgress,
    MeasuredEnergy,
    MeasureMargin,
    PairChoice,
    PairInfo,
    PromptTokens,
    Queued,
    ReplyRequest,
    Report,
    ScoreMargin,
    SharedReply,
    Status,
    Tuning,
)
from .registry import Registry, Running
from .shared import MOST, Shared


class Engine:
    """Holds at most one pair and answers conversations with it, on one thread."""

    def __init__(
        self, registry: Registry | None = None, pressure: Callable[[], Pressure] = pressure
    ) -> None:
        self.session: Session | None = None
        """None while no pair is loaded."""
        self.shared: Shared | None = None
        """The replies that take turns, once there was one with this pair."""
        self._choice: PairChoice | None = None
        self._tuning = Tuning()
        self._registry = registry or Registry()
        self._pressure = pressure

    def load(self, choice: PairChoice, report: Report) -> Loaded:
        """Load a pair, or switch to it.

        The new pair passes its checks and the memory plan before anything of the old one is
        released. Both are held while the new one is read if they fit together and memory is not
        low; otherwise the old one goes first and is read again if the new one fails. If only the
        draft model changes, the target stays, with what it has read. What ``report`` raises ends
        the loading.

        Raises:
            MacspecError: the pair cannot be loaded; the old one still works.
        """
        if self.session is not None and choice == self._choice:
            return Loaded(_info(self.session), kept_cache=True)
        report(LoadProgress("finding"))
        _fetch([name for name in (choice.target, choice.draft) if name is not None], report)
        pair = self._opened(choice, lambda: report(LoadProgress("finding")))
        for notice in pair.notices:
            report(Notice(notice))
        level = self._pressure().level
        if level == "critical":
            report(Notice("memory is low: close other programs to avoid swapping"))
        # No local name may keep the old pair alive.
        kept = self.session is not None and pair.target is self.session.pair.target
        both = pair.plan.total + self._resident(kept)
        # The other machines of a group hold one target.
        alone = choice.hosts is None or kept
        together = alone and level in (None, "normal") and self._enter(choice, both)
        if not together and not self._enter(choice, pair.plan.total):
            others = self._registry.others()
            raise OutOfMemoryError(f"the pair needs {pair.plan}; {_holders(others)}")
        try:
            if not together:
                self._let_go(keep_target=kept)
            pair.read(lambda done: report(LoadProgress("reading", done, pair.plan.weights)))
            self._install(pair, choice, report)
        except BaseException as error:
            # Nor may the error keep what was read of the new pair.
            traceback.clear_frames(error.__traceback__)
            del pair
            self._go_back(together, error)
            raise
        self._enter(choice, pair.plan.total)
        return Loaded(_info(self._loaded()), kept_cache=kept)

    def reply(self, request: ReplyRequest) -> Generator[Event, None, None]:
        """Answer a conversation; errors as ``Session.reply``, or BadOptionError without a pair."""
        if request.on_overflow not in ("drop", "refuse"):
            raise BadOptionError(f"on_overflow is {request.on_overflow}: choose drop or refuse")
        options = {field.name: getattr(request, field.name) for field in fields(request)}
        return self._loaded().reply(**options)

    def share(self, call: int, command: SharedReply) -> Queued | None:
        """Queue a reply that takes turns with others, as ``Shared.begin``; errors as ``reply`` and
        ``tune``."""
        session = self._loaded()
        settings = _settings(self._changed(command.changes))
        session.check(settings.method)
        if self.shared is None:
            assert self._choice is not None
            plan, kv_bits = session.pair.plan, self._choice.kv_bits
            most = plan.total + (MOST - 1) * plan.caches
            total = min(most, device_limit() - sum(it.planned for it in self._registry.others()))
            if not self._enter(self._choice, total):
                total = plan.total
            self.shared = Shared(session, total - plan.total + plan.caches, kv_bits)
        return self.shared.begin(call, command, settings)

    def score_margin(self, choice: MeasureMargin) -> ScoreMargin:
        """How close a choice of a reply was, under the current rule and sampling.

        Raises:
            BadOptionError: no pair is loaded, or a token does not exist; or as ``reply``.
        """
        request = choice.request
        margin, tolerance = self._loaded().score_margin(
            request.messages,
            choice.said,
            choice.tokens,
            max_tokens=request.max_tokens,
            raw=request.raw,
            think=request.think,
        )
        return ScoreMargin(margin, tolerance)

    def note_energy(self, measured: MeasuredEnergy) -> Status:
        """Learn what a reply took, as far as a pair is loaded."""
        if self.session is not None:
            self.session.controller.watts.observe(measured.joules, measured.rounds)
        return self.status()

    def count_tokens(self, request: ReplyRequest) -> PromptTokens:
        """How long the prompt of a reply would be; BadOptionError without a pair, or as
        ``Session.reply``."""
        session = self._loaded()
        sizes = session.count_tokens(request.messages, raw=request.raw, think=request.think)
        return PromptTokens(*sizes, session.pair.context)

    def stop(self) -> Finished:
        """End the reply, if it has not ended, and return how it ended."""
        session = self._loaded()
        session.close()
        assert session.finished is not None
        return session.finished

    def tune(self, changes: Mapping[str, Any]) -> Tuning:
        """Change settings, all of them or none, or BadOptionError for a wrong name or value."""
        tuning = self._changed(changes)
        settings = _settings(tuning)
        if self.session is not None:
            self.session.method = settings.method
            _apply(settings, self.session)
        self._tuning = tuning
        return tuning

    def _changed(self, changes: Mapping[str, Any]) -> Tuning:
        _check_names(changes, Tuning)
        sampling = {**self._tuning.sampling, **(changes.get("sampling") or {})}
        return replace(self._tuning, **{**changes, "sampling": sampling})

    def status(self) -> Status:
        session, plain = self.session, None
        if session is not None:
            plain = session.controller.curve.seconds(session.cached_tokens)
        return Status(
            pair=None if session is None else _info(session),
            tuning=self._tuning,
            why="" if session is None else session.why,
            cached_tokens=0 if session is None else session.cached_tokens,
            memory=mx.get_active_memory(),
            memory_limit=device_limit(),
            kernels="" if session is None else session.kernels.state,
            plain_seconds=plain,
        )

    def idle(self) -> Iterator[None]:
        """Work for idle times: measure costs, then save what was learned."""
        if self.session is not None:
            yield from self.session.measure()
            self.session.remember()
            yield from self.session.kernels.idle()

    def unexpected(self, error: BaseException) -> None:
        """What to do after an error that comes from nobody knows where."""
        group.unexpected(error)
        if self.session is not None and isinstance(error, RuntimeError):
            with suppress(RuntimeError, GpuLostError):  # the next reply finds that out
                self.session.recover(error)

    def close(self) -> None:
        self._save()
        self._registry.leave()

    def _save(self) -> None:
        """End the replies and save what was learned."""
        if self.shared is not None:
            self.shared.close()
            self.shared = None
        if self.session is not None:
            self.session.close()
            self.session.remember()

    def _loaded(self) -> Session:
        if self.session is None:
            raise BadOptionError("no model is loaded: choose one first")
        return self.session

    def _opened(self, choice: PairChoice, waiting: Callable[[], None] = lambda: None) -> Pair:
        """A pair that has passed all checks, its weights not yet read; ``waiting`` as of
        ``Group``."""
        others = self._registry.others()
        asked = asdict(choice)
        del asked["learn"], asked["kernels"], asked["hosts"]
        beside = None
        if self.session is not None and _same_target(choice, self._choice):
            beside = self.session.pair
        try:
            held = sum(other.planned for other in others)
            machines = None if choice.hosts is None else group.group_of(choice.hosts, waiting)
            return load_pair(**asked, beside=beside, held=held, read=False, group=machines)
        except OutOfMemoryError as error:
            if not others:
                raise
            raise OutOfMemoryError(f"{error}; {_holders(others)}") from error

    def _resident(self, kept: bool) -> int:
        """Bytes of the loaded pair that a switch frees; ``kept``: the target stays."""
        if self.session is None:
            return 0
        pair = self.session.pair
        if not kept:
            return pair.plan.total
        return sum(it.weight_bytes for it in (pair.draft, pair.head) if it is not None)

    def _enter(self, choice: PairChoice, planned: int) -> bool:
        """Reserve memory beside the other engines; whether it fits."""
        names = " + ".join(name for name in (choice.target or "built-in", choice.draft) if name)
        limit = device_limit()
        return planned <= limit and not self._registry.enter(names, planned, limit)

    def _install(self, pair: Pair, choice: PairChoice, report: Report) -> None:
        """Begin a session with a pair that has been read, or change the session's draft model."""
        session = self.session
        if session is not None and session.pair.target is not pair.target:
            session = None
        kernels = _kernels(pair, choice, report) if session is None else session.kernels
        known = control_state(pair, choice.kv_bits, kernels=kernels.key) if choice.learn else None
        drafters = [it for it in (pair.draft and "draft", pair.head and pair.head.kind) if it]
        method = self._tuning.method
        if method in MODELS and method not in drafters:
            what = "draft model" if method == "draft" else f"{method} head"
            report(Notice(f"this pair has no {what}; the method is auto again"))
            self._tuning = replace(self._tuning, method="auto")
        settings = _settings(self._tuning)
        self._save()
        if session is not None:
            session.change_draft(pair, known)
        else:
            past = corpus(pair) if choice.learn else None
            session = Session(
                pair, kv_bits=choice.kv_bits, state=known, corpus=past, kernels=kernels
            )
        # A draft model may prove unusable only now; the reason is shown later.
        with suppress(BadOptionError):
            session.method = settings.method
        _apply(settings, session)
        self.session, self._choice = session, choice
        _free()

    def _let_go(self, keep_target: bool) -> None:
        """Drop the session, or only what drafts in it."""
        self._save()
        if keep_target and self.session is not None:
            self.session.change_draft(replace(self.session.pair, draft=None, head=None))
        else:
            self.session = None
        _free()

    def _go_back(self, together: bool, cause: BaseException) -> None:
        """Restore the old pair after a failed load, reading it again if it was released."""
        _free()
        choice, pair = self._choice, None if self.session is None else self.session.pair
        if choice is None:
            self._registry.leave()
            return
        try:
            if pair is None or (not together and pair.draft is None and pair.head is None):
                pair = self._opened(choice)
                pair.read()
                self._install(pair, choice, lambda event: None)
            self._enter(choice, pair.plan.total)
        except MacspecError as error:
            if self.session is None:
                self._choice = None
                self._registry.leave()
            both = f"{cause}; the previous pair could not be reloaded either: {error}"
            raise type(error)(both) from cause


def _kernels(pair: Pair, choice: PairChoice, report: Report) -> Kernels:
    """The kernels of a session, checked first where that is still to do."""

    notices = iter([Notice("checking kernels on this Mac, once and after each update")])

    def checking(step: Checking) -> None:
        for notice in notices:
            report(notice)
        report(LoadProgress("checking", step.done, step.total))

    kernels: Kernels = kernels_for(pair, choice.kernels, checking, kv_bits=choice.kv_bits)
    if kernels.fallback is not None:
        report(Notice(kernels.fallback))
    return kernels


def _check_names(given: Mapping[str, Any], settings: type[Tuning | Sampling]) -> None:
    known = [field.name for field in fields(settings)]
    for name in given:
        if name not in known:
            choices = ", ".join(known)
            raise BadOptionError(f"there is no setting {name!r}; it must be one of {choices}")


def _settings(tuning: Tuning) -> Settings:
    """The settings of a tuning, or BadOptionError for a value outside its range."""
    values = dict(tuning.sampling)
    _check_names(values, Sampling)
    if "logit_bias" in values:
        values["logit_bias"] = tuple(map(tuple, values["logit_bias"]))
    sampling = Sampling(**values)
    return Settings(tuning.method, tuning.depth, tuning.rule, sampling, tuning.objective)


def _apply(settings: Settings, session: Session) -> None:
    session.depth, session.rule = settings.depth, settings.rule
    session.sampling, session.objective = settings.sampling, settings.objective


def _same_target(choice: PairChoice, old: PairChoice | None) -> bool:
    """Whether two choices differ only in draft model and context."""
    return (
        old is not None
        and replace(choice, draft=old.draft, context=old.context, require_draft=old.require_draft)
        == old
    )


def _info(session: Session) -> PairInfo:
    pair = session.pair
    return PairInfo(
        target=pair.target.name,
        draft=None if pair.draft is None else pair.draft.name,
        draft_off=pair.draft_off,
        context=pair.context,
        weights=pair.plan.weights,
        planned=pair.plan.total,
        thinks=session.thinks,
        rollback=session.decoder.target.cache.rollback_by,
        efforts=session.efforts,
        head=None if pair.head is None else pair.head.kind,
    )


def _holders(others: list[Running]) -> str:
    """Which engines hold memory, and what to do about it."""
    held = ", ".join(
        f"process {other.pid} holds {gigabytes(other.planned)} for {other.pair}" for other in others
    )
    return f"other macspec engines are running ({held}): close one of them"


def _free() -> None:
    """Return unreferenced memory to the system."""
    gc.collect()
    mx.clear_cache()


def _fetch(names: Sequence[str], report: Report) -> None:
    """Download models that are hub ids and not in the hub's cache; errors as ``pull``.

    What ``report`` raises ends the download, which the next one continues.
    """
    missing = [
        name for name in names if _on_hub(name) and cached_folder(name.partition("@")[0]) is None
    ]
    for event in pull(missing) if missing else ():
        if isinstance(event, Progress):
            report(LoadProgress("downloading", event.done, event.total, event.model))
        elif isinstance(event, Retrying):
            again = f"retrying in {event.seconds:.0f} s"
            report(Notice(f"lost the connection to the hub ({event.reason}); {again}"))


def _on_hub(name: str) -> bool:
    """Whether a name is a hub id; whoever opens it reports what else is wrong with it."""
    owner, _, model = name.partition("/")
    path = os.path.expanduser(name)
    return bool(owner and model) and path == name and not os.path.exists(path) and "/" not in model
