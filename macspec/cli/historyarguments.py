"""What can be asked of ``macspec history``: its actions, their arguments and their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DESCRIPTION = """\
The conversations that are kept on this machine: list, search, read, carry
away and delete them. macspec run --chat ID continues one.
"""

EXAMPLE = """\
example:
  macspec history search "sky blue"
"""

SEARCH = """\
Find conversations by the words in their title or in one message, the best
first. Each word may be the beginning of one; words in double quotes stand
together. Where no words are found so, any place that holds the query as it
stands is. Exit status 0: something was found; 1: nothing.
"""

EXPORT = """\
Write conversations to standard output or a new file. Markdown is to read: the
path that is shown, with control sequences made visible. JSON holds everything
and can be imported.
"""

IMPORT = """\
Add the conversations of a JSON file from macspec history export, all of them
or, if one is damaged, none. What is here already is not added again.
"""

DELETE = """\
Delete conversations. macspec history undo brings the last ones back; after
thirty days they are removed from the disk.
"""

UNDO = """\
Bring back what the last macspec history delete took; once more, what the one
before it took.
"""

LARGEST = 2**63 - 1
"""Of an id."""


def add_history(commands: Any, whole: Callable[..., Callable[[str], int]]) -> None:
    """Add the command ``history``.

    Args:
        commands: the command line's subparsers.
        whole: makes an argument type of the limits of a whole number.
    """
    history = commands.add_parser(
        "history",
        usage="macspec history [ACTION] [options]",
        help="list, search, show, export and delete conversations",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    history.set_defaults(command="history", action="list", limit=None, deleted=False, json=False)
    actions = history.add_subparsers(title="actions", metavar="ACTION", prog="macspec history")
    id_of = whole(1, LARGEST)

    def action(name: str, arguments: str, about: str, example: str, more: str = "") -> Any:
        it = actions.add_parser(
            name,
            usage=f"macspec history {name}{arguments}",
            help=about,
            description=more or f"{about.capitalize()}.",
            epilog=f"example:\n  macspec history {example}\n",
        )
        it.set_defaults(action=name)
        return it

    it = action("list", " [options]", "what there is, the last changed first", "list --limit 20")
    it.add_argument("--limit", metavar="N", type=whole(1), help="at most so many; default: all")
    it.add_argument("--deleted", action="store_true", help="those that can be brought back")
    it.add_argument("--json", action="store_true", help="one JSON object a line")

    it = action("search", " WORD ... [options]", "find them by words", "search sky blue", SEARCH)
    it.add_argument("words", metavar="WORD", nargs="+", help="what to look for")
    it.add_argument(
        "--limit", metavar="N", type=whole(1), default=20, help="at most so many (default: 20)"
    )
    it.add_argument("--json", action="store_true", help="one JSON object a line")

    it = action("show", " [ID]", "read one, as Markdown", "show 12")
    it.add_argument("id", metavar="ID", type=id_of, nargs="?", help="default: the last one")

    it = action("export", " [ID ...] [options]", "write them out", "export 12 --out sky.md", EXPORT)
    it.add_argument("ids", metavar="ID", type=id_of, nargs="*", help="default: all of them")
    it.add_argument("--out", metavar="FILE", help="a new file; default: standard output")
    it.add_argument(
        "--format",
        choices=("markdown", "json"),
        help="default: json for a FILE that ends in .json, else markdown",
    )

    it = action("import", " FILE", "take in what was exported", "import chats.json", IMPORT)
    it.add_argument("file", metavar="FILE", help="a file, or - for standard input")

    it = action("rename", " ID TITLE", "give one a title", 'rename 12 "The sky"')
    it.add_argument("id", metavar="ID", type=id_of, help="which")
    it.add_argument("title", metavar="TITLE", help="what it shall be called")

    it = action("delete", " ID ... [options]", "delete some", "delete 12 13", DELETE)
    it.add_argument("ids", metavar="ID", type=id_of, nargs="+", help="which")
    it.add_argument(
        "--for-good", action="store_true", help="remove them from the disk at once; no undo"
    )

    action("undo", "", "bring back what was deleted last", "undo", UNDO)
