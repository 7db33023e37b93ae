"""``macspec chat``: sets up engine and conversation, then starts the screen or line mode.

The engine's process is started before Textual is imported, so that both import in parallel.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from functools import partial

from macspec.config.effective import Effective
from macspec.config.schema import BUILT_IN, NONE, Config, section
from macspec.errors import BadOptionError
from macspec.store import Chat, Store, last_generated, one_shots, store_path
from macspec.terminal import Output, complain, say
from macspec.worker import PairChoice, ProcessEngine

from .keys import Keys, table

GRACE = 0.4
"""Seconds the engine has to save what it learned when the user quits."""


def recall(options: argparse.Namespace) -> None:
    """Open the store and find the conversation to continue; BadOptionError: there is none.

    Sets ``store``, ``chat`` and the models of the options before the settings fill them in: those
    of the conversation come first.
    """
    options.store = store = Store(store_path())
    options.named = options.chat is not None
    if options.named:
        store.chat(options.chat)
    elif not options.new and (last := _last(store)) is not None:
        options.chat = last.id
    options.recalled = False
    if options.chat is not None and options.target is None and options.draft is None:
        made = last_generated(store.chat(options.chat), store.thread(options.chat))
        if made is not None:
            options.target, options.draft = made.model or BUILT_IN, made.draft or NONE
            options.recalled = True


def _last(store: Store) -> Chat | None:
    """The conversation left last, even if something was only typed in it."""
    newest = store.chats(1)
    begun = newest and newest[0].leaf is None and newest[0].unsent
    return newest[0] if begun else store.last_chat(one_shots())


def chat(options: argparse.Namespace) -> int:
    """Chat until the user leaves, and return the exit status; BadOptionError: a setting is invalid.

    The options come from ``recall``, filled in from the settings, which are ``effective``.
    """
    effective: Effective = options.effective
    config = configured(options, effective.config)
    effective = replace(effective, config=config)
    keys = Keys(config.keys)
    if not config.history.save:
        _forget(options)
    reason = None if options.plain else no_screen()
    engine = ProcessEngine()
    engine.start()
    from macspec.power import Meter, choose, remembered_idle

    from .chat.conversation import Conversation

    source = config.power.source
    meter = Meter(lambda: choose(source), idle=remembered_idle())
    conversation = Conversation(engine, options.store, config, meter=meter)
    if options.chat is not None:
        conversation.open(options.chat)
    farewell = partial(engine.close, GRACE)
    pairs = _pairs(options, config)
    if options.plain or reason is not None:
        from .line import LineMode

        if options.trouble:
            say(options.trouble)
        if reason is not None:
            say(f"{reason}: using line mode (macspec chat --plain)")
        try:
            return LineMode(conversation, pairs).run()
        finally:
            farewell()
    from .app import MacspecApp
    from .driver import ScreenDriver

    app = MacspecApp(
        conversation,
        effective,
        keys,
        pairs,
        farewell=farewell,
        driver=ScreenDriver,
        trouble=options.trouble,
    )
    try:
        app.run()
    finally:
        app.leaving.say_farewell(wait=True)
    if app.fault is not None:
        complain(app.fault)
    return app.return_code or 0


def _pairs(options: argparse.Namespace, config: Config) -> list[PairChoice]:
    """The pair to load, and the one of the settings where that is of an earlier conversation."""
    choice = PairChoice(
        config.models.target,
        config.models.draft,
        context=config.models.context,
        kv_bits=config.models.kv_bits,
        trust_remote_code=options.trust_remote_code,
        learn=config.speculation.learn,
        kernels=config.speculation.kernels,
        hosts=config.models.hosts,
    )
    if not options.recalled:
        return [choice]
    usual = options.settings.models
    target = None if usual.target == BUILT_IN else usual.target
    draft = None if usual.draft == NONE else usual.draft
    return list(dict.fromkeys([choice, replace(choice, target=target, draft=draft)]))


def _forget(options: argparse.Namespace) -> None:
    """Keep the conversation in memory only, apart from earlier ones."""
    if options.named:
        raise BadOptionError("--chat cannot be used with --no-save")
    options.store.close()
    options.store, options.chat = Store(None), None


def no_screen() -> str | None:
    """Why the screen cannot be used, in a clause; None: it can."""
    if os.environ.get("TERM", "") in ("dumb", "unknown"):
        return f"TERM is {os.environ['TERM']}"
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None or not stream.isatty():
            return f"standard {name} is not a terminal"
    return None


def configured(options: argparse.Namespace, config: Config) -> Config:
    """The settings with what the command line sets instead."""
    given = {
        name: {key: getattr(options, key) for key in section(name) if hasattr(options, key)}
        for name in ("models", "speculation", "control", "sampling", "reply", "history")
    }
    # The other options are filled in from the settings; None there is a value too.
    given["sampling"] = {key: new for key, new in given["sampling"].items() if new is not None}
    sections = {name: replace(getattr(config, name), **given[name]) for name in given}
    return replace(config, **sections)


def list_keys(options: argparse.Namespace) -> None:
    """Print every action with its keys and command."""
    output = Output()
    for line in table(Keys(options.settings.keys)):
        output.text(f"{line}\n")
