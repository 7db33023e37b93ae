"""Whatever stands around them: no mail, number, key, link or path is left."""

from __future__ import annotations

import re
import string

import pytest
from hostile import TEXTS
from hypothesis import example, given
from hypothesis import strategies as st

from macspec.bench.redact import redacted

LETTERS = string.ascii_letters
DIGITS = string.digits

NAMES = st.text(LETTERS + DIGITS + "._+-", min_size=1, max_size=12).filter(
    lambda it: it[-1] not in ".-+"
)
WORDS = st.text(LETTERS, min_size=2, max_size=9)

MAILS = st.builds("{}@{}.{}".format, NAMES, WORDS, WORDS)
PHONES = st.from_regex(
    r"\+?[0-9]{2,3}[ /-]?\([0-9]\)[ /-]?[0-9]{3}([ .-][0-9]{2,4}){1,3}", fullmatch=True
)
PLATES = st.from_regex(r"[A-Z]{1,3}[0-9]{2,4}[A-Z]{0,2}", fullmatch=True)
KEYS = st.one_of(
    st.text(LETTERS + DIGITS, min_size=16, max_size=64).filter(lambda it: re.search(r"\d", it)),
    st.builds("sk-{}".format, st.text(LETTERS + DIGITS, min_size=12, max_size=40)),
    st.builds("ghp_{}".format, st.text(LETTERS, min_size=12, max_size=40)),
    st.text("0123456789abcdef", min_size=32, max_size=64),
    st.text(LETTERS, min_size=40, max_size=80),
)
PATHS = st.one_of(
    st.builds("/{}/{}/{}".format, WORDS, WORDS, NAMES),
    st.builds("~/{}".format, WORDS),
    st.builds("C:\\{}\\{}.txt".format, WORDS, WORDS),
    st.builds("./{}/{}".format, WORDS, WORDS),
    st.builds("{}/{}.py".format, WORDS, WORDS),
    st.builds("{}/{}/{}".format, WORDS, WORDS, WORDS),
)
LINKS = st.builds("https://{}.{}/{}?{}={}".format, WORDS, WORDS, WORDS, WORDS, WORDS)
SECRETS = st.builds(
    lambda name, sign, value: (f"{name}{sign}{value}", value),
    st.sampled_from(["password", "my Passwort", "API key", "api_token", "secret", "db_password"]),
    st.sampled_from([": ", "=", " = ", " is ", ':"']),
    st.text(LETTERS + DIGITS + "!$%&*#", min_size=4, max_size=12),
)  # fmt: skip

BEFORE = st.sampled_from(
    ["", "See ", "Write to\n", "(", '"', "'", "`", "a, ", "日本 ", "\x1b[31m "]
)
AFTER = st.sampled_from(
    ["", " today.", "\nand", ")", '"', "'", "`", ", b", "; ", "!", "?", " 日本"]
)


@given(BEFORE, MAILS | PHONES | PLATES | KEYS | PATHS | LINKS, AFTER)
@example("", "a@b.c", "")
@example('"', "/home/x/y", '"')
def test_what_is_private_is_gone(before: str, private: str, after: str) -> None:
    text = redacted(f"{before}{private}{after}")
    assert private not in text
    for part in re.split(r"[^\w]+", private):
        if len(part) > 5:
            assert part not in text


@given(BEFORE, SECRETS, AFTER)
def test_what_is_called_a_secret_is_gone(before: str, secret: tuple[str, str], after: str) -> None:
    written, value = secret
    text = redacted(f"{before}{written}{after}")
    assert value not in text.replace("[key]", "")


@given(st.text())
@example("a@b 5/6 /x/y [number]5 ٣")
@example("@A@A")
def test_no_digit_and_no_mail_is_left_of_any_text(text: str) -> None:
    clean = redacted(text)
    assert not re.search(r"\d", clean)
    assert not re.search(r"[A-Za-z]@[A-Za-z]", clean)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The quick brown fox jumps over the lazy dog.",
        "He or she, and/or they; about km/h.",
        "def area(a, b):\n    return a / b  # a comment\n",
        "Grüße aus Köln! 你好,世界。",
        "Is this a question? Yes: it is (really).",
        "Anna met Bob in Paris.",
    ],
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Write to Anna.Schmidt+x@firma-gmbh.de now", "Write to [mail] now"),
        ("IBAN DE89 3704 0044 0532 0130 00!", "IBAN [number]!"),
        ("on 2024-03-01 I paid 1,140.50 pounds", "on [number] I paid [number] pounds"),
        ("password: 'open sesame', please", "password: [key], please"),
        ('"/Users/anna/My Documents/x y.txt" is it', '"[path]" is it'),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer [key]"),
        ("-----BEGIN KEY-----\nab\n-----END KEY-----\nrest", "[key]\nrest"),
        ("-----BEGIN KEY-----\nab\ncut off", "[key]"),
        ("at https://user:pw@example.org/a?b=c, yes", "at [link] yes"),
    ],
)
def test_each_kind_has_its_mask(text: str, clean: str) -> None:
    assert redacted(text) == clean


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_texts_are_scrubbed_as_well(name: str) -> None:
    assert not re.search(r"\d", redacted(TEXTS[name]))


UNITS = "x a. a- /a a/ (( a@ @ 1a a1- ~a www. pin= \\ =a + '"


@pytest.mark.parametrize("unit", UNITS.split(" "))
def test_no_long_text_takes_long(unit: str) -> None:
    # Quadratic work on this would outlast any patience.
    redacted(unit * 100_000)
