"""Model output as harmless text: no terminal executes what a model wrote.

Replacements work on single characters, so a stream may be split anywhere.
"""

from __future__ import annotations

SHOWN_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
"""C0 controls except tab and newline become their symbols: ESC is shown as ␛."""

BIDI_CONTROLS = (
    0x061C,  # Arabic letter mark
    *range(0x200E, 0x2010),  # left-to-right and right-to-left marks
    *range(0x202A, 0x202F),  # embeddings and overrides
    *range(0x2066, 0x2070),  # isolates, and the deprecated shaping switches
)
"""Invisible characters that change the order or shape of the text around them."""

SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")

NEUTRAL: dict[int, str | None] = {
    **SHOWN_CONTROLS,
    0x0D: None,  # a carriage return overwrites its own line; of "\r\n" the newline stays
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}"),  # C1: 0x9B alone is CSI
    **dict.fromkeys(BIDI_CONTROLS),
    **SURROGATES,  # halves of pairs, which no terminal can be sent
}


def neutral(text: str) -> str:
    """``text`` for a terminal: control characters become visible, reordering marks are removed.

    Tab, newline, and the joiners used by emoji and several scripts stay.
    """
    return text.translate(NEUTRAL)


def one_line(text: str) -> str:
    """``text`` as a single neutral line, for notices and errors that quote files and names."""
    return " ".join(neutral(text).split())


def utf8(text: str) -> bytes:
    """``text`` in UTF-8 whatever the locale; half of a surrogate pair becomes U+FFFD."""
    return text.translate(SURROGATES).encode() if not text.isascii() else text.encode()
