"""Sums one after the other, asked in many ways, so that small ones are known by heart."""

from random import Random

from phrasebook import phrases

PHRASES = phrases("drills")
Turns = list[tuple[str, str]]
ASK: dict[str, list[str]] = PHRASES["ask"]
SIGNS: dict[str, list[str]] = PHRASES["signs"]
ON: dict[str, list[str]] = PHRASES["on"]


def size(rng: Random) -> int:
    """How large operands are: small ones come most often."""
    return rng.choices((12, 20, 100), (65, 25, 10))[0]


def operands(rng: Random, word: str, fixed: int | None = None) -> tuple[int, int, int]:
    """Two numbers and what comes out; ``fixed`` is one of them where that is possible."""
    top = size(rng)
    a, b = fixed or rng.randint(0, top), rng.randint(0, top)
    if word == "plus":
        return a, b, a + b
    if word == "minus":
        a, b = max(a, b), min(a, b)
        return a, b, a - b
    a, b = fixed if fixed and fixed <= 12 else rng.randint(1, 12), rng.randint(1, 12)
    if word == "times":
        if rng.random() < 0.5:
            a, b = b, a
        return a, b, a * b
    return a * b, a, b


def asked(rng: Random, word: str, a: int, b: int) -> str:
    """The user's words for a sum: by its sign, or spelled out."""
    if rng.random() < 0.3:
        gap = rng.choice(("", " ", " "))
        sum_ = f"{a}{gap}{rng.choice(SIGNS[word])}{gap}{b}"
        return rng.choice(PHRASES["frames"]).format(sum_)
    if rng.random() < 0.4:
        return rng.choice(PHRASES["frames"]).format(f"{a} {word} {b}")
    return rng.choice(ASK[word]).format(a=a, b=b)


def drill(rng: Random) -> Turns:
    """Several sums, some with one number all along, some going on from the last result."""
    turns: Turns = []
    words = rng.choice((("plus",), ("minus",), ("times",), ("divided by",), tuple(SIGNS)))
    fixed = rng.randint(2, 12) if rng.random() < 0.3 else None
    result: int | None = None
    for _ in range(rng.randint(2, 8)):
        if result is not None and rng.random() < 0.3:
            step = onward(rng, result)
        else:
            word = rng.choice(words)
            a, b, result = operands(rng, word, fixed)
            step = asked(rng, word, a, b), a, word, b, result
        said, a, word, b, result = step
        turns.append((said, f"{a} {word} {b} is {result}."))
    return turns


def onward(rng: Random, a: int) -> tuple[str, int, str, int, int]:
    """A sum that goes on from a result."""
    words = ["plus"] * (a <= 100) + ["minus"] * (a > 0) + ["times"] * (a <= 12)
    divisors = [n for n in range(2, 11) if a and a % n == 0]
    word = rng.choice(words + ["divided by"] * bool(divisors))
    if word == "divided by":
        b = rng.choice(divisors)
        result = a // b
    else:
        b = rng.randint(1, min(a, 12)) if word == "minus" else rng.randint(1, 12)
        result = {"plus": a + b, "minus": a - b, "times": a * b}[word]
    return rng.choice(ON[word]).format(b), a, word, b, result
