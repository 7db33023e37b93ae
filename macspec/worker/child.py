"""The child's program: ``python -m macspec.worker.child COMMANDS EVENTS PARENT FORMAT``.

The first two are descriptors. Standard output and error belong to whoever writes to them; the
parent keeps them in a log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

from .codec import FORMAT
from .lifeline import die_with
from .pipes import Inbox, Outbox
from .server import Served, Server


def engine() -> Served:
    """The real one; its import takes longer than everything else here."""
    from .engine import Engine

    return Engine()


def main(arguments: Sequence[str], make: Callable[[], Served] = engine) -> None:
    """Serve until the parent closes its end, then leave without the interpreter's farewell."""
    commands, events, parent = map(int, arguments[:3])
    if arguments[3] != FORMAT:
        sys.exit("macspec was updated while it ran: start it again")
    for descriptor in (commands, events):
        os.set_inheritable(descriptor, False)
    die_with(parent)
    if isinstance(sys.stdout, TextIOWrapper):
        # A process that is killed takes what it has not written with it.
        sys.stdout.reconfigure(line_buffering=True)
    inbox, outbox = Inbox(commands), Outbox(events)
    Server(make(), inbox, outbox).run()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
