"""The program ``macspec``: commands that open models do so in a child that Ctrl-C always ends.

Python handles a signal between two of its own steps. A library that hangs on a model's files, or on
one text, never comes back to it; so this process, which runs nothing else, ends the other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from .. import terminal
from ..terminal import REQUESTS, complain, say, show

SUPERVISED = ("run", "check", "bench", "models")

PROGRAM = (sys.executable, "-P", "-m", "macspec.cli.supervisor")

FORWARD = 0.2
"""Seconds after which a request is passed on; a terminal sends it to both processes."""

OBEY = 2.0
"""Seconds in which the child has to obey a request."""


def main() -> int:
    """Run the command of this process; returns the exit status."""
    if sys.argv[1:2] and sys.argv[1] in SUPERVISED:
        return supervise([*PROGRAM, str(os.getpid()), *sys.argv[1:]])
    from .main import main

    return main()


def supervise(command: Sequence[str]) -> int:
    """Run a command with this process's streams and in its group; returns the exit status.

    With ``SIGUSR1`` it says that it obeys a request to leave; if it does not, it is killed.
    """
    requests = [it for it in REQUESTS if signal.getsignal(it) is not signal.SIG_IGN]
    awaited = [*requests, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    for each in awaited:  # A Mac drops signals that are ignored, as SIGCHLD is by default.
        signal.signal(each, lambda signum, frame: None)
    child = os.posix_spawn(command[0], [*command], os.environ, setsigmask=before)
    asked = forwarded = killed = 0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        number = signal.sigwait(awaited)
        if number == signal.SIGUSR1:
            asked = 0
        elif number in requests and not asked:
            asked, forwarded = number, 0
            signal.setitimer(signal.ITIMER_REAL, FORWARD)
        elif number == signal.SIGALRM and asked and signal.SIGUSR1 not in signal.sigpending():
            if forwarded:
                killed = asked
            else:
                forwarded = asked
                signal.setitimer(signal.ITIMER_REAL, OBEY - FORWARD)
            os.kill(child, signal.SIGKILL if killed else asked)
    if killed:
        return _left(killed)
    status = os.waitstatus_to_exitcode(ended[1])
    return status if status >= 0 else _crashed(child, -status)


def _left(asked: int) -> int:
    with suppress(OSError):  # The terminal may be gone.
        if sys.stderr is not None and sys.stderr.isatty():
            show("")
        say("it did not answer and was ended")
    return 128 + asked


def _crashed(child: int, number: int) -> int:
    """The exit status after a signal; one that asks to leave ends this process, too."""
    if number in (*REQUESTS, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    from ..inuse import died

    name = signal.Signals(number).name
    if died(child, -number):
        again = "the next start checks them before it uses them; run it again"
        complain(f"it crashed ({name}) while macspec's kernels ran: {again}")
    elif number in (signal.SIGKILL, signal.SIGABRT):
        advice = "close other programs, or choose a shorter context or a smaller model"
        complain(f"it was ended by {name}, as when memory runs out: {advice}")
    else:
        complain(f"it crashed ({name}): please report it with the output of macspec check --report")
    return 2


def _child() -> int:
    """The command; what libraries print below Python goes to the log of engines."""
    from ..parent import exit_with_parent
    from .main import main

    terminal.leave_on_interrupt()
    terminal.supervisor = int(sys.argv.pop(1))
    exit_with_parent(terminal.supervisor)
    _log_libraries()
    return main()


def _log_libraries() -> None:
    """Leave standard error to Python alone: panics of Rust and aborts would trace themselves."""
    from ..worker.log import Log

    if sys.stderr is None:
        return
    log = Log()
    log.begin(os.getpid())
    with suppress(OSError):
        file = os.open(log.path, os.O_WRONLY | os.O_APPEND)
        kept = sys.stderr.encoding
        sys.stderr = open(os.dup(2), "w", 1, encoding=kept, errors="backslashreplace")  # noqa: SIM115
        os.dup2(file, 2)
        os.close(file)


if __name__ == "__main__":
    sys.exit(_child())
