"""The process of a rank other than 0: ``python -m macspec.hosts.rank``, told by a line on standard
input.

It gives signs of life, and ends with rank 0, while it still imports what a follower needs.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from ..errors import brief
from ..parent import exit_with_parent
from .link import Link
from .start import Start, versions


def main() -> None:
    start = Start(**json.loads(sys.stdin.readline()))
    if start.parent is not None:
        exit_with_parent(start.parent)
    connection = socket.create_connection((start.address[0], start.address[1]))
    hello = {"secret": start.secret, "rank": start.rank, "versions": versions()}
    connection.sendall(json.dumps(hello).encode() + b"\n")
    link = Link(connection, lost=lambda how: os._exit(0))
    try:
        from .follower import follow

        follow(start, link)
    except BaseException as error:
        print(f"{type(error).__name__}: {brief(error)}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
