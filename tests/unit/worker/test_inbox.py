"""The commands of the engine's child process."""

from __future__ import annotations

import os
import time

from macspec.worker.child import Inbox
from macspec.worker.messages import GetStatus, Stop, encode


def test_a_stopped_call_is_forgotten_once_it_has_ended() -> None:
    reading, writing = os.pipe()  # stays open: the inbox ends the process with it
    inbox = Inbox(reading)
    for call, command in ((1, GetStatus()), (0, Stop(1)), (0, Stop(7)), (2, GetStatus())):
        os.write(writing, encode(call, command))
    taken = []
    while len(taken) < 2:
        if (item := inbox.take()) is not None:
            taken.append(item[0])
        time.sleep(0.001)
    assert [inbox.stopped(call) for call in (1, 2, 7)] == [True, False, False]
    inbox.ended(1)
    assert not inbox.stopped(1)
    assert (inbox._open, inbox._stopped) == ({2}, set())
