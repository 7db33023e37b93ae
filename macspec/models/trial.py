"""A model folder's own code is tried in a process with limits before it runs here.

A chat template is a program, and a tokenizer's rules can grow a text without end. Both are tried on
a few texts, together with the rest of the folder, by ``python -m macspec.models.trial``, which may
take only so much time and memory. What passed is remembered until a file changes.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..config.paths import cache_folder
from ..errors import MacspecError, ModelBrokenError, brief
from ..io import read_json, write_atomic
from ..power.conditions import printed
from .folder import identity
from .rendering import FACTOR, MARGIN

SECONDS = 4
"""Of processor time for a folder, and one more for each ``STRIDE`` bytes of its small files."""

STRIDE = 2**20
"""So that a tokenizer of 262,144 pieces and 514,906 merges (13 to 30 MB: 4 to 4.5 s) may take at
least four times as long: a processor that is shared can be that slow."""

PATIENCE = 60.0
"""Seconds for a folder on a machine that is busy with something else, and three more for each
``STRIDE``."""

MEMORY = 1_750_000_000
"""Bytes for a folder, of which the weights are not read, beside what the process has before it."""

LOOK = 0.1
"""Seconds between two looks at the memory, where the system does not limit it."""

KEPT = 500
"""Most folders remembered."""

NO_MEMORY = 100
"""Exit status after a MemoryError."""

START = "start"
"""The stage before any folder is read; who fails there says nothing about one."""

LONG = 20
"""How often parts of a long text repeat."""

PROGRAM = (sys.executable, "-P", "-m", "macspec.models.trial")

SMALL = (".json", ".model", ".txt", ".jinja", ".tiktoken")


class Trial:
    """The process that tries folders, one after the other; started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def check(self, name: str, folder: Path, *, trust_remote_code: bool = False) -> None:
        """Try a folder that is not known yet; ModelBrokenError says what is wrong with it."""
        known, key = _known(), _key(folder, trust_remote_code)
        if key in known:
            return
        with self._lock:
            patience = PATIENCE + 3 * _strides(folder)
            answer = self._ask([name, str(folder), trust_remote_code], patience)
        if answer.get("refused"):
            raise ModelBrokenError(str(answer["refused"]))
        if answer.get("stage", START) != START:
            raise ModelBrokenError(
                f"{name}: its {answer['stage']} {answer['died']}: choose another copy of the model"
            )
        if answer.get("passed"):
            newest = dict([*known.items(), (key, int(time.time()))][-KEPT:])
            with suppress(OSError):
                write_atomic(_file(), json.dumps(newest), make_folder=True)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _ask(self, folder: list[Any], patience: float) -> dict[str, Any]:
        """Its last answer; where it died, with ``died`` and the ``stage`` in which it did."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [*PROGRAM, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "RUST_BACKTRACE": "0"},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        stage, died, until = START, "", time.monotonic() + patience
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(folder).encode() + b"\n")
            process.stdin.flush()
        text = b""
        while not died:
            ready, _, _ = select.select([process.stdout], [], [], LOOK)
            if ready:
                data = os.read(process.stdout.fileno(), 2**16)
                text += data
                for line in text.split(b"\n")[:-1]:
                    answer: dict[str, Any] = json.loads(line)
                    if "stage" not in answer:
                        return answer
                    stage = answer["stage"]
                text = text.rpartition(b"\n")[2]
                if not data:
                    process.wait()
                    died = _ending(process.returncode)
            if time.monotonic() > until:
                died = "takes too long"
            elif sys.platform == "darwin" and _resident(process.pid) > MEMORY:
                died = "needs too much memory"
        self.close()
        return {"stage": stage, "died": died}


TRIAL = Trial()


def _ending(status: int) -> str:
    if status in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return "takes too long"
    if status in (-signal.SIGKILL, -signal.SIGABRT, NO_MEMORY):
        return "needs too much memory"
    return "crashes"


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds, on a Mac."""
    found = re.search(r"\d+", printed(("ps", "-o", "rss=", "-p", str(pid))))
    return int(found[0]) * 1024 if found else 0


def _file() -> Path:
    return cache_folder() / "trials.json"


def _known() -> dict[str, int]:
    known = read_json(_file())
    return known if isinstance(known, dict) else {}


def _key(folder: Path, trust_remote_code: bool) -> str:
    versions = [version(it) for it in ("macspec", "mlx-lm", "transformers", "tokenizers")]
    entries = [str(folder.resolve()), trust_remote_code, versions, identity(folder)]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


# In the process with limits.


def main(parent: int) -> None:
    """Try the folders named on standard input and write how that went."""
    from ..parent import exit_with_parent

    exit_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def write(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")

    from .loading import opened  # Takes a second, which is not the folder's.

    if sys.platform == "linux":
        mx.eval(mx.zeros(1))  # What MLX takes for the machine, much with CUDA, is not either.
        most = _held() + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    for line in sys.stdin:
        name, folder, trust_remote_code = json.loads(line)
        _limit_time(Path(folder))
        try:
            model = opened(name, Path(folder), trust_remote_code, lambda it: write(stage=it))
            write(stage="tokenizer")
            _try_tokenizer(model.tokenizer)
            write(stage="chat template")
            _try_template(name, model.tokenizer)
            write(passed=True)
        except MacspecError as error:
            write(refused=str(error))
        except MemoryError:
            os._exit(NO_MEMORY)
        except BaseException as error:
            write(refused=f"{name} cannot be loaded ({brief(error)}): choose another copy of it")


def _held() -> int:
    """Bytes that count towards RLIMIT_DATA."""
    found = re.search(r"^VmData:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _strides(folder: Path) -> int:
    """How often its small files have ``STRIDE`` bytes."""
    small = (it for it in folder.iterdir() if it.suffix in SMALL and it.is_file())
    return sum(it.stat().st_size for it in small) // STRIDE


def _limit_time(folder: Path) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + SECONDS + _strides(folder)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


def _try_tokenizer(tokenizer: Any) -> None:
    """Texts to tokens and back, at once and one by one."""
    from .vocabulary import PROBES

    for text in (*PROBES, " ".join(PROBES) * LONG):
        tokens = tokenizer.encode(text)
        tokenizer.decode(tokens)
        detokenizer = tokenizer.detokenizer
        for token in tokens[:LONG]:
            detokenizer.add_token(token)
        detokenizer.finalize()


def _try_template(name: str, tokenizer: Any) -> None:
    """Conversations as text; a template may reject them, and does so here without a word."""
    if not tokenizer.has_chat_template:
        return
    user, system = {"role": "user", "content": "Hello"}, {"role": "system", "content": "Be brief."}
    reply = {"role": "assistant", "content": "Hi.\n" * LONG}
    chat = [*[user, reply] * LONG, user]
    shapes = [[user], [system, user], [*[user, reply] * 4, user], [system, *chat]]
    for turns in shapes:
        said = sum(len(turn["content"]) for turn in turns)
        for settings in ({}, {"enable_thinking": True}, {"thinking": False}):
            try:
                text = tokenizer.apply_chat_template(
                    turns, tokenize=False, add_generation_prompt=True, **settings
                )
            except MemoryError:
                raise
            except Exception:
                continue
            if len(text) > FACTOR * (said + MARGIN):
                raise ModelBrokenError(
                    f"{name}: its chat template makes {len(text)} characters of {said}: choose "
                    "another copy of the model"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]))
