"""The group of machines as rank 0 sees it: what starts the others, and tells them what to do."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from ..errors import HostError, OutOfMemoryError, brief
from ..models.loading import Model, mlx_lm, open_model
from ..models.memory import LEAST, Demand, MemoryPlan
from .file import Host, Hosts, read_hosts
from .files import digests
from .link import BEAT, Link
from .lost import APART, ENDED, LOOK, PATIENCE, SILENT, Watch, guarded, last_line, leave, leaving
from .model import LeadModel
from .sharding import Shares, shares, spread
from .start import JOIN, Start, versions

PROGRAM = ("-P", "-m", "macspec.hosts.rank")

SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=4"),
)

START = 90.0
"""Seconds for the other machines to start."""

HELLO = 4096
"""Bytes of a rank's first line."""

TICK = 0.1


@dataclass(eq=False)
class Rank:
    """Another machine of the group."""

    number: int
    host: Host
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    """What it has printed."""
    memory: int = 0
    """Bytes that it gives to models."""
    link: Link | None = None

    @property
    def name(self) -> str:
        return f"rank {self.number}" if self.host.local else self.host.name

    @property
    def last_line(self) -> str:
        """The last line that it has printed, as ``lost.last_line`` has it."""
        return last_line(self.output.fileno())


class Group:
    """The ranks of one hosts file, and what rank 0 asks of them.

    When one of them is lost, this process ends, which may be waiting for it below Python.

    Args:
        waiting: called now and then while answers are awaited; what it raises ends that.

    Raises:
        HostError: a machine cannot take part.
    """

    core: Any = None
    """MLX's group."""

    def __init__(self, hosts: Hosts, waiting: Callable[[], None] = lambda: None) -> None:
        self.hosts, self.waiting = hosts, waiting
        self._asked = self._opened = 0
        self._ranks: list[Rank] = []
        self._joining = False
        self._failed = ""
        """Why a machine was lost before that."""
        try:
            with _listening(hosts) as server:
                self._start(server)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        return len(self.hosts.hosts)

    @property
    def ranks(self) -> Sequence[Rank]:
        """The others."""
        return self._ranks

    def join(self) -> None:
        """Connect all ranks, or end this process if they do not reach each other."""
        if self.core is not None:
            return
        with leaving:
            self._joining = True
            if self._failed:
                leave(self._failed)
        ranks = [(it.name, it.process.pid, it.output.fileno()) for it in self._ranks]
        links = [it.link for it in self._ranks if it.link is not None]
        assert len(links) == len(self._ranks)
        with guarded(JOIN, ranks):
            for link in links:
                link.joining = True
            self._send("join")
            for link in links:
                link.receive()  # it is about to join
            try:
                self.core = self._own.join()
            except RuntimeError as error:
                leave(f"{APART} ({brief(error)})")
            for link in links:
                link.receive()  # it has joined, perhaps seconds after this one
                link.joining = False
            self._send("joined")

    def tell(self, name: str, *arguments: Any) -> None:
        """As ``Others`` says."""
        self._send(name, None, *arguments)

    def ask(self, name: str, *arguments: Any) -> int:
        """As ``Others`` says."""
        self._asked += 1
        self._send(name, self._asked, *arguments)
        return self._asked

    def answers(self, number: int) -> list[Any]:
        """Wait for the answers of all ranks.

        Raises:
            HostError: one could not do it.
        """
        found, failed = [], []
        for rank in self._ranks:
            kind, asked, value = self._answer(rank)
            while asked != number:
                kind, asked, value = self._answer(rank)
            if kind == "failed":
                failed.append(f"{rank.name}: {value}")
            found.append(value)
        if failed:
            raise HostError("; ".join(failed))
        return found

    def agree(self, number: int, own: Any) -> None:
        """As ``Others`` says."""
        for rank, answer in zip(self._ranks, self.answers(number), strict=True):
            if answer != own:
                raise HostError(
                    f"{rank.name} runs this model in another way than this machine ({answer}, "
                    f"not {own}): use machines of one kind"
                )

    def open(
        self,
        name: str,
        folder: Path,
        source: str | None,
        trust: bool,
        context: int | None,
        kv_bits: int | None,
    ) -> Model:
        """As ``loading.Machines`` says."""
        self.join()
        whole = open_model(name, folder, trust_remote_code=trust)
        found = shares(name, lambda: fresh(folder, trust), self.size, whole.context)
        self._opened += 1
        files = digests(folder)
        asked = self.ask("open", self._opened, _there(source), trust, found.how, files)
        module = fresh(folder, trust)
        spread(module, self.core, found.how)
        self.answers(asked)
        parts = Spread(self, self._opened, found, whole, kv_bits)
        longest = parts.longest(context or whole.context, asked=context is not None)
        own = found.estimates[0]
        if context is None:
            own = replace(own, context=min(own.context, longest))
        return replace(whole, module=module, weight_bytes=own.weights, estimate=own, spread=parts)

    def fail(self, error: BaseException) -> None:
        """End this process, for an error after which the ranks may be out of step; if a machine
        was lost, which is found within ``PATIENCE``, with that as the reason."""
        time.sleep(PATIENCE + BEAT)
        leave(f"the machines are out of step ({brief(error)})")

    def close(self) -> None:
        """Have the others leave."""
        for rank in self._ranks:
            if rank.link is not None:
                rank.link.close()
            rank.process.kill()
            rank.output.close()

    def _answer(self, rank: Rank) -> Any:
        assert rank.link is not None
        while (answer := rank.link.receive(TICK)) is None:
            self._wait()
        return answer

    def _wait(self) -> None:
        if self._failed:
            raise HostError(self._failed)
        self.waiting()

    def _send(self, *message: Any) -> None:
        for rank in self._ranks:
            assert rank.link is not None
            rank.link.send(*message)

    def _start(self, server: socket.socket) -> None:
        variables, files = self.hosts.environment()
        backend = self.hosts.backend.partition("-")[0]
        secret = secrets.token_hex(16)
        self._own = Start(0, server.getsockname(), secret, None, backend, variables, files)
        for number, host in enumerate(self.hosts.hosts[1:], 1):
            parent = os.getpid() if host.local else None
            self._ranks.append(_started(host, replace(self._own, rank=number, parent=parent)))
        until, watch = time.monotonic() + START, Watch()
        while waiting := [it for it in self._ranks if it.link is None]:
            for rank in waiting:
                if rank.process.poll() is not None:
                    raise HostError(f"{rank.name} could not be started{rank.last_line}")
                if watch.how(rank.process.pid) == SILENT:
                    raise HostError(f"{rank.name} {SILENT}")
            if time.monotonic() > until:
                names = ", ".join(it.name for it in waiting)
                raise HostError(
                    f"{names} did not answer within {START:.0f} s{waiting[0].last_line}"
                )
            self._wait()
            with suppress(TimeoutError):
                self._welcome(server.accept()[0], secret)
        for rank in self._ranks:
            (rank.memory,) = self._answer(rank)

    def _welcome(self, connection: socket.socket, secret: str) -> None:
        """Take a rank in; who does not know the secret is none."""
        hello = _hello(connection)
        given = str(hello.get("secret", ""))
        if not secrets.compare_digest(given.encode(), secret.encode()):
            connection.close()
            return
        rank = self._ranks[hello["rank"] - 1]
        for package, number in versions().items():
            there = hello["versions"].get(package)
            if there != number:
                raise HostError(
                    f"{rank.name} has {package} {there}, and this machine {number}: install the "
                    "same version on both"
                )
        rank.link = Link(connection, partial(self._lose, rank))

    def _lose(self, rank: Rank, how: str) -> None:
        """A machine was lost, on another thread."""
        with leaving:
            if how == ENDED:
                with suppress(subprocess.TimeoutExpired):
                    rank.process.wait(TICK)
                how = (ENDED if self._joining else "could not be started") + rank.last_line
            if not self._joining:
                self._failed = f"{rank.name} {how}"
                return
            for other in self._ranks:
                other.process.kill()
            leave(f"{rank.name} {how}")


@dataclass(frozen=True, eq=False)
class Spread:
    """How an open target is spread over a group, as ``loading.Spread`` says."""

    group: Group = field(repr=False)
    number: int
    """Of the target on the other ranks."""
    shares: Shares
    whole: Model = field(repr=False)
    kv_bits: int | None

    @property
    def key(self) -> str:
        hosts = self.group.hosts
        names = ", ".join(it.name for it in hosts.hosts)
        return f"{self.shares.how}, {hosts.backend}: {names}"

    def model(self, module: Any, vocabulary: int, **settings: Any) -> LeadModel:
        return LeadModel(self.group, self.number, module, vocabulary, **settings)

    def longest(self, context: int, *, asked: bool) -> int:
        """The most positions, of so many, for which the parts of the other ranks fit.

        Raises:
            OutOfMemoryError: there are too few, or fewer than were asked for.
        """
        found = context
        for name, demand in self._demands():
            longest = demand.longest(context)
            if longest < (context if asked else min(LEAST, context)):
                raise OutOfMemoryError(
                    f"{name}: its part of the target needs {demand.plan(context)}: choose a "
                    "shorter context, a smaller or more quantized model, or more machines"
                )
            found = min(found, longest)
        return found

    def fit(self, plan: MemoryPlan) -> MemoryPlan:
        chunks = [demand.plan(plan.context).chunk for _, demand in self._demands()]
        return replace(plan, chunk=min([plan.chunk, *chunks]))

    def begin_reading(self, plan: MemoryPlan) -> Callable[[], object]:
        planned = [demand.plan(plan.context).total for _, demand in self._demands()]
        asked = self.group.ask("load", self.number, planned)
        return lambda: self.group.answers(asked)

    def _demands(self) -> list[tuple[str, Demand]]:
        return [
            (rank.name, Demand(estimate, None, rank.memory, self.kv_bits))
            for rank, estimate in zip(self.group.ranks, self.shares.estimates[1:], strict=True)
        ]


def fresh(folder: Path, trust: bool = False) -> Any:
    """A model of mlx-lm, whose weights are not read."""
    return mlx_lm.load_model(folder, lazy=True, trust_remote_code=trust)[0]


def _listening(hosts: Hosts) -> socket.socket:
    try:
        server = socket.create_server((hosts.first, 0))
    except OSError as error:
        raise HostError(
            f"{hosts.first} is no address of this machine ({error.strerror}): the first host of "
            f"{hosts.path.name} must be the one on which you start macspec"
        ) from error
    server.settimeout(LOOK)
    return server


def _started(host: Host, start: Start) -> Rank:
    # What a machine lacks is said, not fetched while everybody waits.
    command = ["env", "HF_HUB_OFFLINE=1", host.python, *PROGRAM]
    if not host.local:
        command = [*SSH, host.name, shlex.join(command)]
    output = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(f"{host.name} could not be started ({error.strerror})") from error
    assert process.stdin is not None
    with suppress(OSError):  # it has ended already, which is found soon
        process.stdin.write(json.dumps(asdict(start)).encode() + b"\n")
        process.stdin.close()
    return Rank(start.rank, host, process, output)


def _hello(connection: socket.socket) -> dict[str, Any]:
    """The first line of a connection; empty if it is none of a rank."""
    connection.settimeout(TICK * 10)
    line = b""
    with suppress(OSError, ValueError):
        while not line.endswith(b"\n") and len(line) < HELLO:
            data = connection.recv(1)
            if not data:
                break
            line += data
        hello = json.loads(line)
        return hello if isinstance(hello, dict) else {}
    return {}


def _there(source: str | None) -> str | None:
    """A name as it means the same on the other machines: folders in the home folder by that."""
    path = os.path.abspath(os.path.expanduser(source or ""))
    if source is None or not os.path.isdir(path):
        return source
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}{os.sep}") else path


_joined: Group | None = None


def unexpected(error: BaseException) -> None:
    """An error has come from nobody knows where: see ``Group.fail``, if there is a group."""
    if _joined is not None:
        _joined.fail(error)


def group_of(name: str, waiting: Callable[[], None] = lambda: None) -> Group:
    """The group of a hosts file, whose machines stay together as long as this process lives.

    Raises:
        BadOptionError: the file cannot be used, or is not that of this process's group.
        HostError: a machine cannot take part.
    """
    global _joined
    hosts = read_hosts(name)
    if _joined is None:
        _joined = Group(hosts, waiting)
    elif _joined.hosts != hosts:
        raise HostError("restart macspec to use other machines")
    _joined.waiting = waiting
    return _joined
