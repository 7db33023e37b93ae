"""A front end to be killed: loads, streams without end, and says what it has."""

from __future__ import annotations

import sys
from pathlib import Path

from children import SCRIPTED

from macspec.events import Text
from macspec.worker import PairChoice, ProcessEngine, ReplyRequest

engine = ProcessEngine(program=SCRIPTED, log=Path(sys.argv[1]))
engine.load(PairChoice()).result(60)
print(engine.pid, flush=True)
while True:
    for event in engine.reply(ReplyRequest("slowly", max_tokens=20)):
        if isinstance(event, Text):
            print(event.delta, flush=True)
