"""Line mode: a conversation without a screen, one line after the other."""

from __future__ import annotations

import asyncio
import sys

from macspec.commands.output import Output, say
from macspec.config import Effective
from macspec.errors import MacspecError
from macspec.events import Notice
from macspec.worker import Failed, PairChoice

from .slash import parse
from .talk.talk import Talk
from .talk.turns import Piece
from .talk.updates import Told


def chat_in_lines(talk: Talk, settings: Effective, choice: PairChoice) -> int:
    """Answer every line of standard input until it ends, and return the exit status.

    Args:
        settings: what holds.
        choice: the pair to load.
    """
    return asyncio.run(_chat(talk, choice))


async def _chat(talk: Talk, choice: PairChoice) -> int:
    output = Output()
    try:
        async for event in talk.load(choice):
            if isinstance(event, Notice | Failed):
                say(event.message)
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                command = parse(line)
                if command is not None and command.action.id == "leave":
                    break
                if command is not None:
                    raise MacspecError(f"/{command.action.slash} needs the screen")
                if line.strip():
                    await _reply(talk, line.rstrip("\n"), output)
            except MacspecError as error:
                say(str(error))
    finally:
        await talk.close()
    return 0


async def _reply(talk: Talk, text: str, output: Output) -> None:
    async for update in talk.ask(text):
        match update:
            case Piece(text=piece, reasoning=False):
                output.text(piece)
            case Told(line):
                say(line)
    output.text("\n")
