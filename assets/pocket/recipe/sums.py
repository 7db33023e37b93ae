"""Sums with right answers."""

from random import Random

from phrasebook import phrases
from words import NAMES, NUMBERS, OBJECTS

PHRASES = phrases("sums")
Turns = list[tuple[str, str]]
ASK = PHRASES["ask"]
SIGNS = PHRASES["signs"]


def operands(rng: Random, sign: str) -> tuple[int, int, int]:
    """Two numbers and what comes out."""
    if sign == "+":
        top = rng.choice((10, 10, 20, 20, 50, 100))
        a, b = rng.randint(0, top), rng.randint(0, top)
        return a, b, a + b
    if sign == "-":
        top = rng.choice((10, 20, 20, 50, 100))
        a, b = sorted((rng.randint(0, top), rng.randint(0, top)), reverse=True)
        return a, b, a - b
    a, b = rng.randint(1, 12), rng.randint(1, 12)
    return (a, b, a * b) if sign == "*" else (a * b, b, a)


def plain(rng: Random) -> Turns:
    """A sum, sometimes with follow-ups that go on from its result."""
    sign = rng.choice("++-***/")
    a, b, result = operands(rng, sign)
    word, *marks = SIGNS[sign]
    spelled = rng.random() < 0.15 and a <= 20 and b <= 20
    if rng.random() < 0.5:
        x, y = (NUMBERS[a], NUMBERS[b]) if spelled else (str(a), str(b))
        asked = f"{x} {word} {y}"
    else:
        gap = rng.choice(("", " ", " "))
        asked = f"{a}{gap}{rng.choice(marks)}{gap}{b}"
    turns = [(rng.choice(ASK).format(asked), f"{a} {word} {b} is {result}.")]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        kind = rng.randrange(5)
        if kind == 0:
            turns.append(
                (
                    rng.choice(("are you sure?", "really?", "is that right?", "sure?")),
                    f"Yes, {a} {word} {b} is {result}.",
                )
            )
        elif kind == 1 and result <= 100:
            more = rng.randint(1, 10)
            turns.append(
                (
                    rng.choice(PHRASES["plain"]).format(more),
                    f"{result} plus {more} is {result + more}.",
                )
            )
            a, word, b, result = result, "plus", more, result + more
        elif kind == 2 and result > 0:
            less = rng.randint(1, min(result, 10))
            turns.append(
                (
                    rng.choice(
                        ("and minus {}?", "minus {}?", "take away {}", "now subtract {}")
                    ).format(less),
                    f"{result} minus {less} is {result - less}.",
                )
            )
            a, word, b, result = result, "minus", less, result - less
        elif kind == 3 and result <= 50:
            turns.append(
                (
                    rng.choice(("double it", "and twice that?", "now double that", "times 2?")),
                    f"{result} times 2 is {result * 2}.",
                )
            )
            a, word, b, result = result, "times", 2, result * 2
        else:
            sign = rng.choice("+-*")
            a, b, result = operands(rng, sign)
            word = SIGNS[sign][0]
            turns.append(
                (
                    rng.choice(("and {}?", "what about {}?", "now {}", "ok, and {}?")).format(
                        f"{a} {word} {b}"
                    ),
                    f"{a} {word} {b} is {result}.",
                )
            )
    return turns


def story(rng: Random) -> Turns:
    """A short word problem with its working."""
    what, name = rng.choice(OBJECTS), rng.choice(NAMES)
    kind = rng.randrange(5)
    if kind == 0:
        a, b = rng.randint(2, 20), rng.randint(1, 20)
        asked = rng.choice(
            (
                f"I have {a} {what} and get {b} more. How many do I have?",
                f"If I have {a} {what} and buy {b} more, how many {what} do I have now?",
                f"I had {a} {what}. A friend gave me {b} more. How many do I have now?",
            )
        )
        return [(asked, f"{a} + {b} = {a + b}. You have {a + b} {what}.")]
    if kind == 1:
        a, b = rng.randint(2, 20), rng.randint(1, 20)
        a, b = max(a, b) + 1, min(a, b)
        asked = rng.choice(
            (
                f"{name} has {a} {what} and gives away {b}. How many are left?",
                f"{name} had {a} {what} and lost {b} of them. How many does {name} have now?",
            )
        )
        return [(asked, f"{a} - {b} = {a - b}. {name} has {a - b} {what} left.")]
    if kind == 2:
        a, b = rng.randint(2, 10), rng.randint(2, 10)
        asked = rng.choice(
            (
                f"There are {a} boxes with {b} {what} in each. How many {what} are there?",
                f"{name} buys {a} bags with {b} {what} each. How many {what} is that?",
            )
        )
        return [(asked, f"{a} x {b} = {a * b}. There are {a * b} {what}.")]
    if kind == 3:
        a, b = rng.randint(2, 10), rng.randint(2, 10)
        asked = rng.choice(
            (
                f"{b} friends share {a * b} {what}. How many does each get?",
                f"If {a * b} {what} are shared by {b} children, how many does each child get?",
            )
        )
        return [(asked, f"{a * b} / {b} = {a}. Each gets {a} {what}.")]
    a, price = rng.randint(2, 10), rng.randint(2, 9)
    asked = f"One ticket costs {price} dollars. How much do {a} tickets cost?"
    return [(asked, f"{a} x {price} = {a * price}. They cost {a * price} dollars.")]


def compare(rng: Random) -> Turns:
    """Which number is larger, odd or even, half or next."""
    a, b = rng.sample(range(1, 101), 2)
    kind = rng.randrange(5)
    if kind == 0:
        return [
            (
                rng.choice(PHRASES["compare"]).format(a, b),
                f"{max(a, b)} is bigger than {min(a, b)}.",
            )
        ]
    if kind == 1:
        return [
            (
                rng.choice(
                    ("is {} even or odd?", "is {} odd or even?", "is {} an even number?")
                ).format(a),
                f"{a} is {'odd' if a % 2 else 'even'}.",
            )
        ]
    if kind == 2:
        return [
            (
                rng.choice(("what is half of {}?", "half of {}?")).format(2 * (b // 2)),
                f"Half of {2 * (b // 2)} is {b // 2}.",
            )
        ]
    if kind == 3:
        return [
            (
                rng.choice(("what comes after {}?", "which number comes after {}?")).format(a),
                f"After {a} comes {a + 1}.",
            )
        ]
    return [
        (
            rng.choice(("what is double {}?", "what is twice {}?")).format(a),
            f"Twice {a} is {2 * a}.",
        )
    ]
