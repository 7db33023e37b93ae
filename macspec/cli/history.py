"""``macspec history``: list, search, show, export, import, rename and delete conversations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadOptionError, MacspecError, cause
from ..plaintext import one_line
from ..terminal import Output, decoded, say
from .options import LARGEST, Parser, add_actions, add_flag, whole

if TYPE_CHECKING:
    from ..store import Chat, Message, Store

LONGEST = 300
"""Most characters of a problem."""

TITLE_WIDTH = 100
"""Most characters of a title in a list."""

DESCRIPTION = "The conversations saved on this machine. macspec run --chat ID continues one."

SEARCH = """\
Find conversations by the words in their title or in one message, best match
first. Each word may be the beginning of one; words in double quotes stay
together. If nothing has the words, any text that contains the query matches.
Exit status 0: something was found; 1: nothing.
"""

EXPORT = """\
Write conversations to standard output or a new file. Markdown is for reading:
the versions in view, with control sequences made visible. JSON holds
everything and can be imported.
"""

IMPORT = """\
Add the conversations of a JSON file written by macspec history export: all of
them, or none if one is damaged. Those already here are not added again.
"""

DELETE = """\
Delete conversations. macspec history undo restores them; after thirty days
they are removed from the disk.
"""

CHECK = """\
Check the file in which conversations are saved: that SQLite can read all of
it, and that every value can be. Exit status 0: it is sound; 1: it is damaged.
"""

REPAIR = """\
Keep all conversations that can be read, in a new file. The damaged file is set
aside in the same folder; nothing of it is deleted.
"""

UNDO = """\
Restore what the last macspec history delete removed; run it again for the one
before.
"""


def add_options(history: Parser) -> None:
    history.usage = "macspec history [ACTION] [options]"
    history.description = DESCRIPTION
    history.epilog = 'example:\n  macspec history search "sky blue"\n'
    history.set_defaults(action="list", limit=None, deleted=False, json=False)
    action = add_actions(history)
    id_of: dict[str, Any] = {"metavar": "ID", "type": conversation}
    json: dict[str, Any] = {"action": "store_true", "help": "print one JSON object a line"}
    limit: dict[str, Any] = {"metavar": "N", "type": whole(1)}

    it = action("list", "[options]", "list conversations, last changed first", "--limit 20")
    it.add_argument("--limit", **limit, help="at most this many (default: all)")
    add_flag(it, "--deleted", "list those that undo can restore")
    it.add_argument("--json", **json)

    it = action("search", "WORD ... [options]", "find conversations", "sky blue", SEARCH)
    it.add_argument("words", metavar="WORD", nargs="+", help="what to look for")
    it.add_argument("--limit", **limit, default=20, help="at most this many (default: 20)")
    it.add_argument("--json", **json)

    it = action("show", "[ID]", "show a conversation as Markdown", "12")
    it.add_argument("id", **id_of, nargs="?", help="which one (default: the last)")

    about = "export conversations"
    it = action("export", "[ID ...] [options]", about, "12 --out sky.md", EXPORT)
    it.add_argument("ids", **id_of, nargs="*", help="which ones (default: all)")
    it.add_argument("--out", metavar="FILE", help="a new file (default: standard output)")
    it.add_argument(
        "--format",
        choices=("markdown", "json"),
        help="format of the output (default: json if FILE ends in .json, otherwise markdown)",
    )

    it = action("import", "FILE", "import exported conversations", "chats.json", IMPORT)
    it.add_argument("file", metavar="FILE", help="a file, or - for standard input")

    it = action("rename", "ID TITLE", "rename a conversation", '12 "The sky"')
    it.add_argument("id", **id_of, help="which one")
    it.add_argument("title", metavar="TITLE", help="its new title")

    it = action("delete", "ID ... [options]", "delete conversations", "12 13", DELETE)
    it.add_argument("ids", **id_of, nargs="+", help="which ones")
    add_flag(it, "--for-good", "remove them from the disk now; no undo")

    action("undo", "", "restore what was deleted last", "", UNDO)
    action("check", "", "check the file of conversations", "", CHECK)
    action("repair", "", "keep what can be read of a damaged file", "", REPAIR)


def conversation(text: str) -> int:
    """An argument type: the number of a conversation."""
    try:
        return whole(1, LARGEST)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f'no conversation "{one_line(text)}"') from None


def history(options: argparse.Namespace) -> int:
    """Do what ``options.action`` says and return the exit status."""
    from ..store import Store, store_path

    if options.action in FILE:
        return FILE[options.action](store_path())
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
    if not chats and not options.json and store.trouble is None:
        say("there are no deleted conversations" if options.deleted else "no conversations yet")
    output = Output()
    width = max((len(str(chat.id)) for chat in chats), default=0)
    for chat in chats:
        if options.json:
            output.json(asdict(chat))
        else:
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
    if not hits and not options.json:
        say(f"no conversation has {one_line(decoded(' '.join(options.words)))}")
    return 0 if hits else 1


def _show(store: Store, options: argparse.Namespace) -> int:
    chats = store.chats(1) if options.id is None else [store.chat(options.id)]
    if not chats:
        raise BadOptionError("there is no conversation to show yet")
    Output().text(store.export([chats[0].id], "markdown"))
    return 0


def _export(store: Store, options: argparse.Namespace) -> int:
    from ..store.transfer import format_of, write_new

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
    return f"added {_count(new)}" + (f"; {here} already here" if here else "")


def _rename(store: Store, options: argparse.Namespace) -> str:
    return f"renamed {_named([store.rename(options.id, decoded(options.title))])}"


def _delete(store: Store, options: argparse.Namespace) -> str:
    chats = (store.purge if options.for_good else store.delete)(*options.ids)
    end = "for good" if options.for_good else "macspec history undo restores them"
    return f"deleted {_count(chats)}: {_named(chats)} ({end})"


def _undo(store: Store, options: argparse.Namespace) -> str:
    chats = store.undo()
    return f"restored {_count(chats)}: {_named(chats)}"


def _check(path: Path) -> int:
    from ..store.repair import problems

    found = problems(path)
    for problem in found:
        Output().text(f"{one_line(problem)[:LONGEST]}\n")
    say("macspec history repair keeps what can be read" if found else "the conversations are sound")
    return 1 if found else 0


def _repair(path: Path) -> int:
    from ..store.repair import repair

    done = repair(path)
    kept = f"kept {_conversations(done.chats)} with {done.messages} messages"
    say(f"{kept}; the damaged file is now {done.aside}")
    return 0


FILE = {"check": _check, "repair": _repair}
READING = {"list": _list, "search": _search, "show": _show, "export": _export}
CHANGING = {"import": _import, "rename": _rename, "delete": _delete, "undo": _undo}


def _refuse_trouble(store: Store) -> None:
    if store.trouble is not None:
        raise MacspecError(store.trouble)


def _line(chat: Chat, width: int) -> str:
    from ..store.valid import day

    return f"{chat.id:>{width}}  {day(chat.deleted or chat.changed):<16}  {_title(chat)}\n"


def _title(chat: Chat) -> str:
    from ..store import title_of

    title = title_of(chat)
    return title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"


def _named(chats: Sequence[Chat]) -> str:
    return ", ".join(f"{chat.id} {_title(chat)}" for chat in chats)


def _count(chats: Sequence[object]) -> str:
    return _conversations(len(chats))


def _conversations(count: int) -> str:
    return "1 conversation" if count == 1 else f"{count} conversations"


def _read_json(name: str) -> list[tuple[Chat, list[Message]]]:
    from ..store.transfer import FEWER, LARGEST_FILE, from_json

    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise BadOptionError(f"cannot read {name}: {cause(error)}") from None
    if len(data) > LARGEST_FILE:
        raise BadOptionError(f"{name} is over {LARGEST_FILE >> 20} MB: {FEWER}")
    try:
        return from_json(data.decode())
    except UnicodeDecodeError:
        raise BadOptionError(f"{name} is not UTF-8") from None
    except BadOptionError as error:
        raise BadOptionError(f"cannot import {name}: {error}") from None
