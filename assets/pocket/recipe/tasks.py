"""Lists, JSON, spelling, counting, letters and code."""

import json
from random import Random

from phrasebook import phrases
from words import CITIES, DAYS, EASY, FOODS, KINDS, NAMES, NUMBERS

PHRASES = phrases("tasks")
Turns = list[tuple[str, str]]


def number(rng: Random, value: int) -> str:
    return NUMBERS[value] if value <= 12 and rng.random() < 0.5 else str(value)


def listing(rng: Random) -> Turns:
    """A list of things, numbered, with dashes or in a line."""
    kind = rng.choice(list(KINDS))
    things = KINDS[kind]
    count = rng.choice((2, 3, 3, 3, 4, 5, 5, 6))
    picked = rng.sample(things, count)
    asked = rng.choice(PHRASES["listing"])
    asked = asked.format(number(rng, count), kind)
    if rng.random() < 0.3:
        kind, wishes = rng.choice(PHRASES["wishes"])
        things = KINDS[kind]
        picked = rng.sample(things, count)
        who, when = rng.choice(PHRASES["persons"]), rng.choice(PHRASES["occasions"])
        asked = rng.choice(wishes).format(c=number(rng, count), p=who, o=when)
    style = rng.choice(("numbers", "numbers", "numbers", "dashes", "line"))
    if style != "numbers":
        asked = asked.removesuffix(", please").rstrip("?.")
    if style == "dashes":
        asked += rng.choice((" as bullet points", " with dashes", " as a bullet list"))
        answer = "\n".join(f"- {thing}" for thing in picked)
    elif style == "line":
        asked += rng.choice((" in one line", " separated by commas", " in one sentence"))
        answer = ", ".join(picked)
    else:
        answer = "\n".join(f"{n}. {thing}" for n, thing in enumerate(picked, 1))
    turns = [(asked, answer)]
    rest = [thing for thing in things if thing not in picked]
    if rest and rng.random() < 0.3:
        more = rng.choice(rest)
        turns.append((rng.choice(PHRASES["listing_more"]), more))
    return turns


def structured(rng: Random) -> Turns:
    """A JSON object or list from what the user says."""
    name, age, city = rng.choice(NAMES), rng.randint(5, 90), rng.choice(CITIES)
    kind = rng.randrange(4)
    if kind == 0:
        asked = rng.choice(PHRASES["two_fields"])
        return [(asked.format(name, age), json.dumps({"name": name, "age": age}))]
    if kind == 1:
        asked = rng.choice(PHRASES["three_fields"])
        return [
            (
                asked.format(name, age, city),
                json.dumps({"name": name, "age": age, "city": city}, indent=rng.choice((None, 2))),
            )
        ]
    if kind == 2:
        kind_of = rng.choice([key for key in KINDS if " " not in key])
        count = rng.randint(2, 5)
        picked = rng.sample(KINDS[kind_of], count)
        asked = rng.choice(PHRASES["json_list"])
        return [(asked.format(number(rng, count), kind_of), json.dumps(picked))]
    food, price = rng.choice(FOODS), rng.randint(2, 30)
    asked = rng.choice(
        ("make JSON with item {} and price {}", "write an order of {} for {} dollars as JSON")
    )
    return [(asked.format(food, price), json.dumps({"item": food, "price": price}))]


def spelling(rng: Random) -> Turns:
    """Spelling, letters and words said again."""
    word = rng.choice(EASY)
    kind = rng.randrange(6)
    if kind == 0:
        asked = rng.choice(PHRASES["spell"])
        return [(asked.format(word), "-".join(word).upper())]
    if kind == 1:
        asked = rng.choice(PHRASES["count_letters"])
        return [
            (
                asked.format(word),
                f"{'-'.join(word).upper()}: the word {word} has {len(word)} letters.",
            )
        ]
    if kind == 2:
        asked = rng.choice(PHRASES["first_letter"])
        if rng.random() < 0.4:
            asked = rng.choice(PHRASES["last_letter"])
            return [(asked.format(word), f"The last letter of {word} is {word[-1].upper()}.")]
        return [(asked.format(word), f"The first letter of {word} is {word[0].upper()}.")]
    if kind == 3:
        asked = rng.choice(
            ("write {} in capital letters", "{} in uppercase", "write {} in upper case")
        )
        return [(asked.format(word), word.upper())]
    if kind == 4:
        words = " ".join(rng.sample(EASY, rng.randint(2, 5)))
        asked = rng.choice(PHRASES["repeat"])
        return [(asked.format(words), words)]
    name = rng.choice(NAMES)
    return [
        (
            rng.choice(PHRASES["greet"]).format(name),
            f"Hello, {name}! Nice to meet you.",
        )
    ]


def counting(rng: Random) -> Turns:
    """Numbers and letters in their order."""
    kind = rng.randrange(5)
    if kind == 0:
        top = rng.randint(3, 20)
        asked = rng.choice(
            ("count to {}", "can you count to {}?", "count from 1 to {}", "please count to {}")
        )
        return [(asked.format(number(rng, top)), ", ".join(map(str, range(1, top + 1))))]
    if kind == 1:
        top = rng.randint(3, 12)
        asked = rng.choice(("count down from {}", "count backwards from {}", "countdown from {}"))
        return [(asked.format(number(rng, top)), ", ".join(map(str, range(top, 0, -1))))]
    if kind == 2:
        return [
            (
                rng.choice(
                    ("count by twos to 20", "even numbers to 20", "list the even numbers up to 20")
                ),
                "2, 4, 6, 8, 10, 12, 14, 16, 18, 20",
            )
        ]
    if kind == 3:
        return [
            (
                rng.choice(PHRASES["counting"]),
                "A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z",
            )
        ]
    by = rng.randint(2, 10)
    asked = rng.choice(
        ("the multiplication table of {}", "times table of {}", "give me the times table for {}")
    )
    return [
        (
            asked.format(by),
            "\n".join(f"{n} x {by} = {n * by}" for n in range(1, rng.choice((6, 11)))),
        )
    ]


def letter(rng: Random) -> Turns:
    """A short message to someone."""
    name, day = rng.choice(NAMES), rng.choice(DAYS)
    about, body = rng.choice(PHRASES["matters"])
    asked = rng.choice(PHRASES["letter"])
    body = body.format(d=day)
    return [(asked.format(about.format(n=name, d=day)), f"Dear {name},\n\n{body}\n\nBest wishes")]


def code(rng: Random) -> Turns:
    """A few lines of Python."""
    what, lines = rng.choice(
        (
            ("adds two numbers", "def add(a, b):\n    return a + b"),
            ("multiplies two numbers", "def multiply(a, b):\n    return a * b"),
            ("says hello", 'def hello(name):\n    print("Hello, " + name)'),
            (
                "returns the larger of two numbers",
                "def larger(a, b):\n    if a > b:\n        return a\n    return b",
            ),
            ("checks if a number is even", "def is_even(n):\n    return n % 2 == 0"),
            ("counts to ten", "def count():\n    for n in range(1, 11):\n        print(n)"),
            ("reverses a string", "def reverse(text):\n    return text[::-1]"),
            ("computes the square of a number", "def square(n):\n    return n * n"),
            (
                "sums a list",
                (
                    "def total(numbers):\n    result = 0\n    for n in numbers:\n        result +="
                    " n\n    return result"
                ),
            ),
        )
    )
    asked = rng.choice(PHRASES["code"])
    return [(asked.format(what), f"```python\n{lines}\n```")]
