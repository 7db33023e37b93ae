"""Requests to say the user's own words again."""

from random import Random

from phrasebook import phrases
from words import ANIMALS, CITIES, COLOURS, EASY, FOODS, KINDS, NAMES

PHRASES = phrases("smalltalk")
Turns = list[tuple[str, str]]


def copying(rng: Random) -> Turns:
    """The user's own words again: in full, twice or three times, in capitals, or one of them."""
    kind = rng.randrange(7)
    word = rng.choice((rng.choice(EASY), rng.choice(NAMES), rng.choice(ANIMALS)))
    if kind < 3:
        said = " ".join(rng.choices((*EASY, *NAMES, *ANIMALS), k=rng.randint(1, 5)))
        if kind:
            said = rng.choice(PHRASES["sentences"]).format(
                n=rng.choice(NAMES),
                m=rng.choice(NAMES),
                c=rng.choice(COLOURS),
                f=rng.choice(FOODS),
                p=rng.choice(CITIES),
            )
        return [(rng.choice(PHRASES["repeat"]).format(said), said)]
    if kind == 3:
        return [(rng.choice(PHRASES["thrice"]).format(word), " ".join([word] * 3))]
    if kind == 4:
        return [(rng.choice(PHRASES["twice"]).format(word), f"{word} {word}")]
    if kind == 5:
        return [(rng.choice(PHRASES["capitals"]).format(word), word.upper())]
    one, two = rng.sample(("fruits", "vegetables", "sports", "countries", "instruments"), 2)
    named = {"fruits": "a fruit", "vegetables": "a vegetable", "sports": "a sport"}
    named |= {"countries": "a country", "instruments": "an instrument"}
    right = rng.choice(KINDS[one])
    choices = [right, *rng.sample(KINDS[two], 2)]
    rng.shuffle(choices)
    shown = f"{choices[0]}, {choices[1]} or {choices[2]}"
    first = right[0].upper() + right[1:]
    return [
        (rng.choice(PHRASES["which_of"]).format(named[one], shown), f"{first} is {named[one]}.")
    ]
