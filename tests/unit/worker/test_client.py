"""A call keeps every event for its reader, whichever way it is read."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from macspec.events import Finished, Notice, Text
from macspec.worker import Call, Failed
from macspec.worker.messages import Answer

END = Failed("stopped", "enough")


def fill(call: Call, count: int) -> None:
    for number in range(count):
        call.put(Text(f"{number} ", ()))
        if number % 50 == 0:
            time.sleep(0.001)
    call.put(END)


def numbered(events: list[Answer]) -> list[int]:
    *texts, last = events
    assert last == END
    return [int(event.delta) for event in texts if isinstance(event, Text)]


def test_a_thread_reads_all_events_in_order() -> None:
    call = Call(Finished)
    threading.Thread(target=fill, args=(call, 1000)).start()
    assert numbered(list(call)) == list(range(1000))
    assert list(call) == []


def test_an_event_loop_reads_all_events_in_order() -> None:
    async def read() -> list[Answer]:
        call = Call(Finished)
        others = threading.Event()

        def fill_late() -> None:
            assert others.wait(60)
            fill(call, 1000)

        threading.Thread(target=fill_late).start()
        asyncio.get_running_loop().call_later(0.01, others.set)
        return [event async for event in call]

    assert numbered(asyncio.run(read())) == list(range(1000))


def test_a_late_reader_misses_nothing() -> None:
    call = Call(Finished)
    fill(call, 20)
    assert call.done
    assert call.result() == END
    assert call.text == "".join(f"{number} " for number in range(20))
    assert numbered(list(call)) == list(range(20))


def test_nothing_comes_after_the_end() -> None:
    call = Call(Finished)
    call.put(END)
    call.put(Notice("too late"))
    assert list(call) == [END]


def test_waiting_for_the_end_can_be_given_up() -> None:
    call = Call(Finished)
    with pytest.raises(TimeoutError):
        call.result(0.01)
    call.put(END)
    assert call.result(0.01) == END


def test_a_closed_event_loop_does_not_disturb_the_sender() -> None:
    call = Call(Finished)

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(call), 0.01)

    asyncio.run(leave())
    call.put(END)
    assert list(call) == [END]


def test_only_an_open_call_can_be_stopped() -> None:
    asked = []
    call = Call(Finished, lambda: asked.append(1))
    call.stop()
    call.put(END)
    call.stop()
    assert asked == [1]


def test_what_waits_can_be_taken_at_once() -> None:
    call = Call(Finished)
    fill(call, 3)
    assert numbered(call.arrived()) == [0, 1, 2]
    assert call.arrived() == list(call) == []
    assert call.text == "0 1 2 "
