"""``macspec history``: the conversations that are kept on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from ..errors import BadOptionError, MacspecError
from ..plaintext import one_line
from ..store import Chat, Message, Store, store_path, title_of
from ..store.transfer import format_of, from_json, write_new
from ..terminal import Output, say
from .prompt import decoded

NOTHING_FOUND = 1
"""Exit status of a search without a hit."""

TITLE_WIDTH = 100
"""Characters of a title in a list."""


def history(options: argparse.Namespace) -> int:
    """Do what ``options.action`` says and return the exit status."""
    store = Store(store_path())
    try:
        if options.action in READING:
            if store.trouble is not None:
                say(store.trouble)
            return READING[options.action](store, options)
        _refuse_trouble(store)
        done = CHANGING[options.action](store, options)
        _refuse_trouble(store)
        say(done)
        return 0
    finally:
        store.close()


def _list(store: Store, options: argparse.Namespace) -> int:
    limit = -1 if options.limit is None else options.limit
    chats = store.deleted_chats(limit) if options.deleted else store.chats(limit)
    output = Output()
    if options.json:
        for chat in chats:
            output.json(asdict(chat))
        return 0
    if not chats and store.trouble is None:
        say("there are no deleted conversations" if options.deleted else "no conversations yet")
    width = max((len(str(chat.id)) for chat in chats), default=0)
    for chat in chats:
        output.text(_line(chat, width))
    return 0


def _search(store: Store, options: argparse.Namespace) -> int:
    hits = store.search(decoded(" ".join(options.words)), options.limit)
    output = Output()
    for hit in hits:
        if options.json:
            output.json({**asdict(hit), "chat": asdict(hit.chat)})
            continue
        output.text(_line(hit.chat, 0))
        if hit.message is not None:
            output.text(f"    {one_line(''.join(text for text, _ in hit.excerpt))}\n")
    return 0 if hits else NOTHING_FOUND


def _show(store: Store, options: argparse.Namespace) -> int:
    if options.id is None:
        chats = store.chats(1)
        if not chats:
            raise BadOptionError("there is no conversation to show yet")
        chat = chats[0]
    else:
        chat = store.chat(options.id)
    Output().text(store.export([chat.id], "markdown"))
    return 0


def _export(store: Store, options: argparse.Namespace) -> int:
    chats = [store.chat(id) for id in options.ids] or store.chats()
    form = options.format or format_of(options.out)
    text = store.export([chat.id for chat in chats], form)
    if options.out is None:
        Output().text(text)
    else:
        write_new(options.out, text)
        say(f"wrote {_count(chats)} to {options.out}")
    return 0


def _import(store: Store, options: argparse.Namespace) -> str:
    added = store.import_chats(_read_json(options.file))
    new = [chat for chat in added if chat is not None]
    here = len(added) - len(new)
    return f"added {_count(new)}" + (f"; {here} were here already" if here else "")


def _rename(store: Store, options: argparse.Namespace) -> str:
    return f"renamed {_named([store.rename(options.id, decoded(options.title))])}"


def _delete(store: Store, options: argparse.Namespace) -> str:
    chats = (store.purge if options.for_good else store.delete)(*options.ids)
    end = "for good" if options.for_good else "macspec history undo restores them"
    return f"deleted {_count(chats)}: {_named(chats)} ({end})"


def _undo(store: Store, options: argparse.Namespace) -> str:
    chats = store.undo()
    return f"restored {_count(chats)}: {_named(chats)}"


READING = {"list": _list, "search": _search, "show": _show, "export": _export}
CHANGING = {"import": _import, "rename": _rename, "delete": _delete, "undo": _undo}


def _refuse_trouble(store: Store) -> None:
    """A change that cannot be saved is none."""
    if store.trouble is not None:
        raise MacspecError(store.trouble)


def _line(chat: Chat, width: int) -> str:
    day = datetime.fromtimestamp(chat.deleted or chat.changed).strftime("%Y-%m-%d %H:%M")
    return f"{chat.id:>{width}}  {day}  {_title(chat)}\n"


def _title(chat: Chat) -> str:
    title = title_of(chat)
    return title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"


def _named(chats: Sequence[Chat]) -> str:
    return ", ".join(f"{chat.id} {_title(chat)}" for chat in chats)


def _count(chats: Sequence[object]) -> str:
    return "one conversation" if len(chats) == 1 else f"{len(chats)} conversations"


def _read_json(name: str) -> list[tuple[Chat, list[Message]]]:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise BadOptionError(f"cannot read {name}: {_why(error)}") from None
    try:
        return from_json(data.decode())
    except UnicodeDecodeError:
        raise BadOptionError(f"{name} is not UTF-8") from None
    except BadOptionError as error:
        raise BadOptionError(f"cannot import {name}: {error}") from None


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
