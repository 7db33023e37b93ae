"""Whatever a settings file holds, it is refused in one line, or what it says can be used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest
from hostile import NUMBERS, TEXTS, harms

from macspec.config.effective import load
from macspec.config.file import template
from macspec.config.schema import SETTINGS
from macspec.errors import BadOptionError
from macspec.models.catalog import catalogue
from macspec.sampling import Sampling

WRITTEN = [
    *(repr(number) for number in NUMBERS),
    *('"x"', '""', "[]", "{}", "true", "nan", "inf", "-inf", "1979-05-27", "[[[[]]]]", "0x7f"),
    *('"' + "x" * 300_000 + '"', '"\\u001b[2J"', "'''\nlong\n'''", "{a = {b = [1]}}"),
]
"""Values as TOML writes them."""

Make = Callable[[Path], object]


def text(content: str | bytes) -> Make:
    data = content.encode(errors="replace") if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def files() -> Iterator[tuple[str, Make]]:
    for key in SETTINGS:
        section, _, name = key.partition(".")
        for value in WRITTEN:
            heading = f"[{section}]\n{name}" if name else section
            yield f"{key} = {value[:20]}", text(f"{heading} = {value}\n")
    for name, value in TEXTS.items():
        yield f"a key: {name}", text(f"[models]\n{value} = 1\n")
        yield f"a text: {name}", text(f"[reply]\nsystem = '''{value}'''\n")
    yield "depth", text("a = " + "[" * 100_000)
    yield "deep tables", text("a" + ".a" * 100_000 + " = 1")
    yield "noise", text(bytes(range(256)) * 100)
    yield "too long", text(b"#" * 2**21)
    yield "a pipe", os.mkfifo
    yield "endless", lambda path: path.symlink_to("/dev/zero")
    yield "a folder", Path.mkdir
    yield "a circle", lambda path: path.symlink_to(path)
    for name in ("", "x" * 100_000, "\x1b[2J", "a/b"):
        yield f"a pair named {name[:9]!r}", text(f"[[pairs]]\nname = {name!a}\ntarget = 7\n")
    random, whole = Random(7), bytearray(template().replace("\n# ", "\n").encode())
    for number in range(40):
        changed = bytearray(whole)
        for _ in range(random.randint(1, 9)):
            at = random.randrange(len(changed))
            changed[at : at + random.randint(0, 5)] = random.randbytes(random.randint(0, 4))
        yield f"changed {number}", text(bytes(changed))


CASES = list(files())


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_any_file_is_refused_in_one_line_or_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    used = 0
    for number, (what, make) in enumerate(CASES[::every]):
        monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / str(number)))
        path = tmp_path / str(number) / "config" / "config.toml"
        path.parent.mkdir(parents=True)
        make(path)
        try:
            config = load().config
            Sampling(**asdict(config.sampling))
            catalogue(config.pairs)
        except BadOptionError as error:
            message = str(error)
            assert 10 < len(message) <= 1001, what
            assert harms(message) == [], what
        else:
            used += 1
    assert 0 < used < len(CASES[::every])


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 100
