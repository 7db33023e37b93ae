"""The text of a message: included files, folded pastes, and the history of prompts."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from macspec.errors import MacspecError, cause
from macspec.io import write_atomic
from macspec.plaintext import one_line, utf8

LARGEST = 256 * 1024
"""Most bytes of a file in a message."""

MENTION = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'@]\S*))""")
BLOCK = re.compile(r"^`([^`\n]+)`:\n(`{3,})[^`\n]*\n(?:.*?\n)?\2$", re.DOTALL | re.MULTILINE)
"""A file as formatted by ``block``."""


class FileError(MacspecError):
    """A file cannot be read or written."""


def with_files(text: str, whole: Callable[[str], str] = str) -> tuple[str, Sequence[str]]:
    """``text`` with every ``@file`` replaced by its name, and the files' contents appended; and a
    notice for each name after an @ that is not a file, and stays text.

    Args:
        whole: expands pastes after the names are found, so that pasted text names no files.

    Raises:
        FileError: a file exists but cannot be included.
    """
    blocks: dict[str, str] = {}
    notices: list[str] = []

    def name(match: re.Match[str]) -> str:
        typed = match[1] or match[2] or match[3]
        path, rest = _existing(typed, quoted=match[3] is None)
        if path is None:
            if "/" in typed or match[3] is None:
                notices.append(f"there is no file {one_line(typed)}; sent as text")
            return match[0]
        if path.is_dir():
            notices.append(f"{one_line(str(path))} is a folder; sent as text")
            return match[0]
        label = one_line(typed.removesuffix(rest)).replace("`", "'")
        blocks.setdefault(label, block(path, label))
        return f"`{label}`{rest}"

    named = whole(MENTION.sub(name, text))
    message = "\n\n".join([named.rstrip("\n"), *blocks.values()]) if blocks else named
    return message, notices


def block(path: Path, label: str) -> str:
    """A file's name and content, in a fence longer than any in it; raises as ``read``."""
    content = read(path)
    longest = max(map(len, re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    kind = path.suffix.lstrip(".")
    info = kind if kind.isalnum() else ""
    end = "" if content.endswith("\n") or not content else "\n"
    return f"`{label}`:\n{fence}{info}\n{content}{end}{fence}"


def read(path: Path) -> str:
    """The text of a file; line ends become newlines.

    Raises:
        FileError: it is not UTF-8 text, too large, not a regular file, or cannot be read.
    """
    shown = one_line(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{shown} is not a regular file")
            data = b"" if status.st_size > LARGEST else file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise FileError(f"{shown} cannot be read: {cause(error)}") from None
    if max(status.st_size, len(data)) > LARGEST:
        raise FileError(
            f"{shown} has {status.st_size:,} bytes, but a message takes files of up to "
            f"{LARGEST:,}; paste the relevant part"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{shown} is not UTF-8 text") from None
    if "\0" in text:
        raise FileError(f"{shown} is not text: it contains null bytes")
    return text.replace("\r\n", "\n")


def write(path: Path, text: str) -> Path:
    """Write a whole text into a new file, or nothing; returns the path with ``~`` expanded.

    Raises:
        FileError: it exists already, or cannot be written.
    """
    try:
        path = path.expanduser()
        if path.is_dir():
            raise FileError(f"{path} is a folder; name a file in it")
        if os.path.lexists(path):
            raise FileExistsError
        write_atomic(path, utf8(text), durable=True, replace=False)
    except FileExistsError:
        raise FileError(f"{one_line(str(path))} already exists; choose another name") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise FileError(f"{path} cannot be written: {cause(error)}") from None
    return path


def _existing(typed: str, *, quoted: bool) -> tuple[Path | None, str]:
    """The file or folder that was named, and the text after its name; None: there is none."""
    bare = typed if quoted else typed.rstrip(".,;:!?)]}>'\"")
    for name in dict.fromkeys((typed, bare)):
        with suppress(OSError, ValueError, RuntimeError):
            path = Path(name).expanduser()
            if name and path.exists():
                return path, typed[len(name) :]
    return None, ""


LONG_CHARACTERS = 1000
LONG_LINES = 8
"""A paste beyond either limit is folded."""

UNWIELDY = 20_000
"""Characters above which a text is too long to edit in a few lines."""

NAME = re.compile(r"\[[^\[\]\n]+ [0-9,]+ (?:lines|characters) #[0-9]+\]")


def is_long(text: str) -> bool:
    """Whether a paste is folded."""
    return len(text) > LONG_CHARACTERS or _lines(text) > LONG_LINES


class Pastes:
    """The pastes of a session by name.

    Only the prompt's own text contains names; history and store have whole texts.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._last = 0

    def fold(self, text: str, what: str = "pasted") -> str:
        """The name that stands for ``text``, such as ``[pasted 42 lines #1]``; it begins with
        ``what``."""
        for name, known in self._texts.items():
            if known == text:
                return name
        name = self._new_name(text, what)
        self._texts[name] = text
        return name

    def expand(self, shown: str) -> str:
        """The prompt's text with every paste expanded."""
        return NAME.sub(lambda match: self._texts.get(match[0], match[0]), shown)

    def folded(self, text: str) -> str:
        """A text with known pastes and long files folded; the inverse of ``expand``.

        A text that is still too long to edit in a few lines is folded whole.
        """
        for match in BLOCK.finditer(text):
            if is_long(match[0]):
                self.fold(match[0], one_line(match[1]))
        self._retire(text)
        parts: list[tuple[str, bool]] = [(text, False)]
        for name, known in sorted(self._texts.items(), key=lambda item: -len(item[1])):
            if known in text:
                parts = [piece for part in parts for piece in _split(part, known, name)]
        shown = "".join(part for part, _ in parts)
        return shown if len(shown) <= UNWIELDY else self.fold(text)

    def places(self, line: str) -> list[tuple[int, int]]:
        """Spans (start, end) of the names in a line of the prompt."""
        return [match.span() for match in NAME.finditer(line) if match[0] in self._texts]

    def _retire(self, text: str) -> None:
        """Rename pastes whose name happens to occur in a text, so that it stays text there."""
        for match in NAME.finditer(text):
            known = self._texts.pop(match[0], None)
            if known is not None:
                what = match[0][1:].rsplit(" ", 3)[0]
                name = self._new_name(known, what)
                while name in text:
                    name = self._new_name(known, what)
                self._texts[name] = known

    def _new_name(self, text: str, what: str) -> str:
        self._last += 1
        lines = _lines(text)
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        label = re.sub(r"[\[\]]", "", what) or "pasted"
        return f"[{label} {size} #{self._last}]"


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _split(part: tuple[str, bool], known: str, name: str) -> list[tuple[str, bool]]:
    text, folded = part
    if folded:
        return [part]
    first, *rest = text.split(known)
    return [(first, False), *(piece for after in rest for piece in ((name, True), (after, False)))]


class Recall:
    """The history of prompts, with the one being written at its end.

    An edit of an earlier prompt is kept until something is sent.

    Args:
        sent: earlier prompts, oldest first.
    """

    def __init__(self, sent: Iterable[str] = ()) -> None:
        self._sent: list[str] = []
        self._changed: dict[int, str] = {}
        self._place = 0
        for text in sent:
            self.add(text)

    def step(self, text: str, by: int) -> str | None:
        """The previous (-1) or next (1) prompt, given what it contains now; None: there is none."""
        place = self._place + by
        if not 0 <= place <= len(self._sent):
            return None
        self._changed[self._place] = text
        self._place = place
        return self._changed.get(place, self._at(place))

    def unsent(self, text: str) -> list[str]:
        """Everything typed and not sent: what is being written, then edited earlier prompts.

        ``text`` is what the prompt contains now."""
        shown = {**self._changed, self._place: text}
        places = sorted(shown, key=lambda place: (place < len(self._sent), place))
        return [shown[at] for at in places if shown[at].strip() and shown[at] != self._at(at)]

    def add(self, text: str) -> None:
        """Add a prompt that was sent, unless it is blank or repeated, and return to the end."""
        if text.strip() and self._sent[-1:] != [text]:
            self._sent.append(text)
        self.rest()

    def rest(self) -> None:
        """Return to the end, and drop the edits of earlier prompts."""
        self._changed.clear()
        self._place = len(self._sent)

    def _at(self, place: int) -> str:
        return self._sent[place] if place < len(self._sent) else ""
