"""Questions about macspec itself, and about the model that answers them."""

from random import Random

from phrasebook import phrases

PHRASES = phrases("about")
Turns = list[tuple[str, str]]

ANSWERS = PHRASES["answers"]


def question(rng: Random) -> Turns:
    """One or two questions about macspec or the model, with their answers."""
    asked = rng.sample(ANSWERS, rng.choice((1, 1, 2, 3)))
    return [(rng.choice(questions) + "?", rng.choice(answers)) for questions, answers in asked]
