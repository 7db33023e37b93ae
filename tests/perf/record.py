"""Record traces for ``macspec bench simulate``: ``python tests/perf/record.py --out FILE``.

A trace says what each drafter would have guessed of a pair's own replies to the chats that ship,
at temperatures 0, 0.7 and 1; or, with --forced, what look-ups would have guessed of a given text.
"""

from __future__ import annotations

import itertools
import json
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from macspec.assets import prompts
from macspec.bench.traces import FORMAT, Guess, Recorded, Trace, runs
from macspec.choices import HEADS, MAX_DEPTH
from macspec.cli.options import Parser, add_models, fill, whole
from macspec.config.schema import BUILT_IN
from macspec.device import prepare
from macspec.drafters import Lookup, NGram, Suffix
from macspec.errors import BadOptionError, MacspecError, brief
from macspec.models import Pair, load_pair
from macspec.models.cached import CachedModel
from macspec.models.template import Template
from macspec.noise import TARGET, Noise
from macspec.sampling import Sampling
from macspec.session import Session
from macspec.terminal import complain, say

Lookups = Callable[[], Sequence[Lookup]]

LONGEST = 16
"""The longest run of a head that is recorded."""

DIGITS = string.digits + string.ascii_lowercase
"""Of runs, up to ``MAX_DEPTH``."""


def usual() -> list[Lookup]:
    """The look-ups whose guesses are recorded."""
    return [NGram(), Suffix()]


def record(
    pair: Pair,
    conversations: Sequence[Sequence[Mapping[str, str]]],
    sampling: Sampling,
    *,
    max_tokens: int = 160,
    turns: int = 1,
    lookups: Lookups = usual,
) -> Iterator[Recorded]:
    """The replies of a pair to conversations, each on its own, and who would have guessed them.

    Args:
        pair: from ``load_pair``.
        conversations: each ends with a user's turn.
        sampling: greedy or keyed; a seed is set for each reply.
        max_tokens: longest reply.
        turns: replies to each conversation; it goes on with what the next one begins with.
        lookups: makes the look-ups of a conversation.
    """
    session = Session(pair, method="off", rule="keyed")
    template = Template(pair)
    places = itertools.product(range(len(conversations)), range(turns))
    said: list[Mapping[str, str]] = []
    for number, (first, turn) in enumerate(places, 1):
        said = [*(said if turn else ()), *conversations[(first + turn) % len(conversations)]]
        prompt = template.tokens(said)
        drawing = Sampling(temperature=sampling.temperature, seed=number)
        for _ in session.reply(said, drawing, max_tokens=max_tokens):
            pass
        if session.finished is None:
            raise RuntimeError("the reply did not finish")
        ids = list(session.finished.token_ids)
        models = {}
        if pair.draft is not None:
            models["draft"] = runs(agreement(pair, prompt, ids, drawing))
        if pair.head is not None:
            models[pair.head.kind] = head_runs(session, prompt, ids, drawing)
        yield Recorded(len(prompt), len(ids), models, guesses(prompt, ids, lookups()))
        said.append({"role": "assistant", "content": session.finished.text})


def forced(pair: Pair, before: str, after: str, lookups: Lookups = usual) -> Recorded:
    """A given text after a given prompt: what look-ups would have guessed of it."""
    tokenizer: Any = pair.target.tokenizer
    prompt = list(tokenizer.encode(before, add_special_tokens=False))
    ids = list(tokenizer.encode(after, add_special_tokens=False))
    return Recorded(len(prompt), len(ids), {}, guesses(prompt, ids, lookups()))


def forced_trace(pair: Pair, before: str, after: str) -> Trace:
    """A given text after a given prompt as a trace of its own."""
    reply = forced(pair, before, after)
    about = f"a given text in tokens of {pair.target.name}, look-ups only"
    return Trace("forced", "forced", about, [reply])


def agreement(
    pair: Pair, prompt: Sequence[int], ids: Sequence[int], sampling: Sampling
) -> list[bool]:
    """Whether the draft model would have drafted each token after the text before it.

    As long as a chain is right it has read the text itself, so one pass over the text tells of
    every chain from every position; under the keyed rule the noise, too, is the position's own.
    """
    if pair.draft is None or not ids:
        return []
    model = CachedModel(pair.draft.module, pair.vocabulary)
    text = mx.array([*prompt, *ids[:-1]], mx.uint32)
    scores = sampling.scores(model.logits(text, len(ids)))
    if not sampling.greedy:
        noise = Noise(sampling.seed or 0, 0, len(prompt), len(ids), pair.vocabulary)
        scores = scores + noise.gumbel(TARGET)
    drafted = mx.argmax(scores, axis=-1)
    return cast("list[bool]", (drafted == mx.array(list(ids), mx.uint32)).tolist())


def head_runs(
    session: Session, prompt: Sequence[int], ids: Sequence[int], sampling: Sampling
) -> list[int]:
    """How many tokens the session's head would have drafted rightly, from each on, up to
    ``LONGEST``: it reads rows of its own, so each chain is drafted anew. The target has just
    decoded them."""
    text, found, vocabulary = [*prompt, *ids], [], session.decoder.pair.vocabulary
    (stepper,) = (it.stepper for it in session.decoder.portfolio.models("auto") if it.name in HEADS)
    for begin in range(len(prompt), len(text)):
        # The hidden row of the newest token never comes, as no pass follows it.
        most = min(LONGEST, len(text) - begin, stepper.room(text[:begin]))
        logits, run = stepper.first(text[:begin], LONGEST, mx.async_eval), 0
        while run < most:
            scores = sampling.scores(logits)
            if not sampling.greedy:
                noise = Noise(sampling.seed or 0, 0, begin + run, 1, vocabulary)
                scores = scores + noise.gumbel(TARGET)
            if mx.argmax(scores).item() != text[begin + run]:
                break
            run += 1
            if run < most:
                token = mx.array([text[begin + run - 1]], mx.uint32)
                logits = stepper.next(token, mx.async_eval)
        stepper.rollback(begin)
        found.append(run)
    return found


def guesses(
    prompt: Sequence[int], ids: Sequence[int], lookups: Sequence[Lookup]
) -> dict[str, list[Guess]]:
    """What each look-up would have said before each token, and how much of it was right."""
    said: dict[str, list[Guess]] = {lookup.name: [] for lookup in lookups}
    tokens = list(prompt)
    for at, token in enumerate(ids):
        for lookup in lookups:
            offer = lookup.offer(tokens)
            guess, _ = lookup.continuation(tokens, min(offer.room, MAX_DEPTH))
            run = 0
            while run < min(len(guess), len(ids) - at) and guess[run] == ids[at + run]:
                run += 1
            said[lookup.name].append(Guess(len(guess), offer.bucket, run))
        tokens.append(token)
    return said


def recorded(
    pair: Pair,
    conversations: Sequence[Sequence[Mapping[str, str]]],
    *,
    max_tokens: int = 160,
    turns: int = 1,
) -> Iterator[Trace]:
    """The pair's replies at temperatures 0, 0.7 and 1.0, a trace each."""
    drafters = " and ".join(it.name for it in (pair.draft, pair.head) if it is not None)
    models = f"{pair.target.name} with {drafters}" if drafters else pair.target.name
    chats = f"{len(conversations)} chats of {turns} replies each"
    for temperature in (0.0, 0.7, 1.0):
        drawing = "greedy" if temperature == 0 else f"keyed at {temperature:g}"
        yield Trace(
            f"chat-{temperature:g}",
            "recorded",
            f"{models}, {chats}, {drawing}",
            list(
                record(
                    pair,
                    conversations,
                    Sampling(temperature=temperature),
                    max_tokens=max_tokens,
                    turns=turns,
                )
            ),
        )


def parser() -> Parser:
    """The command line of this script."""
    it = Parser(prog="python tests/perf/record.py", description=__doc__)
    it.add_argument("--out", metavar="FILE", required=True, help="where to write the traces")
    it.add_argument(
        "--forced",
        metavar=("PROMPT", "TEXT"),
        nargs=2,
        help="two files: take TEXT for the reply to PROMPT, look-ups only",
    )
    it.add_argument(
        "--prompts", metavar="N", type=whole(1), default=60, help="how many chats (default: 60)"
    )
    it.add_argument(
        "--turns", metavar="N", type=whole(1), default=4, help="replies of each (default: 4)"
    )
    it.add_argument(
        "--max-tokens", dest="longest", metavar="N", type=whole(1), default=160,
        help="longest reply (default: 160)",
    )  # fmt: skip
    add_models(it)
    return it


def save(path: Path, traces: Iterable[Trace]) -> None:
    """Write traces to a file.

    Raises:
        BadOptionError: it cannot be written.
    """
    text = json.dumps({"format": FORMAT, "traces": [_stored(it) for it in traces]}, indent=0)
    try:
        path.write_text(text.replace(",\n", ",").replace("[\n", "[") + "\n", encoding="utf-8")
    except OSError as error:
        raise BadOptionError(f"cannot write {path}: {brief(error)}") from None


def _stored(trace: Trace) -> dict[str, Any]:
    return {
        "name": trace.name,
        "kind": trace.kind,
        "about": trace.about,
        "replies": [
            {
                "prompt": reply.prompt,
                "tokens": reply.tokens,
                "models": {
                    name: "".join(DIGITS[run] for run in said)
                    for name, said in reply.models.items()
                },
                "lookups": {
                    name: " ".join(
                        f"{it.room}/{it.bucket}/{it.run}" if it.room else "-" for it in said
                    )
                    for name, said in reply.lookups.items()
                },
            }
            for reply in trace.replies
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, write the traces, and return the exit status."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    try:
        fill(options)
        texts = [_text(path) for path in options.forced or ()]
        prepare()
        pair = load_pair(
            options.target,
            options.draft,
            context=options.context,
            kv_bits=options.kv_bits,
            trust_remote_code=options.trust_remote_code,
        )
        if options.target is options.draft is None:  # of the built-in models, all
            pair = replace(pair, draft=load_pair(None, BUILT_IN).draft)
        chats = prompts()[: options.prompts]
        traces: list[Trace] = []
        for trace in (
            [forced_trace(pair, *texts)]
            if texts
            else recorded(pair, chats, max_tokens=options.longest, turns=options.turns)
        ):
            tokens = sum(reply.tokens for reply in trace.replies)
            say(f"{trace.name}: {tokens} tokens; {trace.about}")
            traces.append(trace)
        save(Path(options.out), traces)
    except MacspecError as error:
        complain(str(error))
        return 2
    return 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOptionError(f"cannot read {path}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
