"""Short stories to order, poems, jokes and riddles."""

from random import Random

from phrasebook import phrases
from words import ANIMALS, COLOURS, NAMES, PEOPLE, PLACES, THINGS, TRAITS

PHRASES = phrases("stories")
Turns = list[tuple[str, str]]
ASK = PHRASES["ask"]
ANY = PHRASES["any"]
MORE = PHRASES["more"]
ENDS = ("How did you like the story?", "The end.", "", "", "")
PLOTS = PHRASES["plots"]
POEMS = PHRASES["poems"]
JOKES = PHRASES["jokes"]
RIDDLES = PHRASES["riddles"]


def article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def told(rng: Random, hero: str | None = None, fixed: dict[str, str] | None = None) -> str:
    hero = hero or rng.choice(ANIMALS + PEOPLE)
    it, its = ("she", "her") if hero in ("girl", "queen", "princess") else ("he", "his")
    if hero in ANIMALS or hero == "robot":
        it, its = "it", "its"
    fill = {
        "hero": hero,
        "it": it,
        "It": it.capitalize(),
        "its": its,
        "trait": rng.choice(TRAITS),
        "place": rng.choice(PLACES),
        "thing": rng.choice(THINGS),
        "colour": rng.choice(COLOURS),
        "name": rng.choice(NAMES),
        "food": rng.choice(("apples", "bread", "cheese", "nuts", "berries")),
        "other": rng.choice(
            [animal for animal in ANIMALS if animal != hero and animal[0] not in "aeiou"]
        ),
        **(fixed or {}),
    }
    plots = [plot for plot in PLOTS if all("{" + key + "}" in plot for key in fixed or {})] or PLOTS
    text = rng.choice(plots).format(**fill)
    for vowel in "aeiou":
        text = text.replace(f" a {vowel}", f" an {vowel}").replace(f"A {vowel}", f"An {vowel}")
    return f"{text} {rng.choice(ENDS)}".strip()


def story(rng: Random) -> Turns:
    """A story, often about something that the user names."""
    turns: Turns = []
    for count in range(rng.choice((1, 1, 1, 2))):
        kind = rng.randrange(6)
        if kind == 0:
            asked, text = rng.choice(ANY), told(rng)
        elif kind == 1:
            hero, name = rng.choice(ANIMALS + PEOPLE), rng.choice(NAMES)
            asked, text = f"{article(hero)} named {name}", told(rng, hero, {"name": name})
            asked = rng.choice(ASK).format(asked)
        elif kind == 2:
            hero, thing = rng.choice(ANIMALS + PEOPLE), rng.choice(THINGS)
            asked = rng.choice(ASK).format(f"{article(hero)} and {article(thing)}")
            text = told(rng, hero, {"thing": thing})
        elif kind == 3:
            hero, place = rng.choice(ANIMALS + PEOPLE), rng.choice(PLACES)
            asked = rng.choice(ASK).format(f"{article(hero)} in a {place}")
            text = told(rng, hero, {"place": place})
        elif kind == 4:
            hero, trait = rng.choice(ANIMALS + PEOPLE), rng.choice(TRAITS)
            asked = rng.choice(ASK).format(f"{article(trait)} {hero}")
            text = told(rng, hero, {"trait": trait})
        else:
            hero = rng.choice(ANIMALS + PEOPLE)
            asked, text = rng.choice(ASK).format(article(hero)), told(rng, hero)
        if count and rng.random() < 0.6:
            asked, text = rng.choice(MORE), told(rng)
        turns.append((asked, text))
    return turns


def poem(rng: Random) -> Turns:
    fill = {
        "thing": rng.choice(("sun", "river", "lamp", "garden")),
        "animal": rng.choice(ANIMALS),
        "place": rng.choice(PLACES),
    }
    text = rng.choice(POEMS)
    if rng.random() < 0.5:
        asked = rng.choice(PHRASES["poem"])
    else:
        about = rng.choice([key for key in fill if "{" + key + "}" in text])
        noun = fill[about]
        asked = rng.choice(PHRASES["poem_about"]).format(
            article(noun) if about != "thing" else f"the {noun}"
        )
    return [(asked, text.format(**fill))]


def joke(rng: Random) -> Turns:
    ask = PHRASES["joke"]
    jokes = rng.sample(JOKES, rng.choice((1, 1, 2)))
    turns = [(rng.choice(ask), joke) for joke in jokes]
    if rng.random() < 0.4:
        turns.append(
            (
                rng.choice(
                    ("haha", "lol", "that was funny", "good one", "hahaha nice one", "not funny")
                ),
                rng.choice(("I am glad you liked it!", "Thank you! I know a few more.")),
            )
        )
        if turns[-1][0] == "not funny":
            turns[-1] = ("not funny", "Sorry! I am better at sums than at jokes.")
    return turns


def riddle(rng: Random) -> Turns:
    asked, answer = rng.choice(RIDDLES)
    turns = [
        (
            rng.choice(
                ("tell me a riddle", "do you know a riddle?", "give me a riddle", "ask me a riddle")
            ),
            asked,
        )
    ]
    if rng.random() < 0.6:
        turns.append(
            (
                rng.choice(("I don't know", "what is it?", "no idea", "tell me", "I give up")),
                f"{answer}",
            )
        )
    else:
        turns.append((answer.rstrip("!").lower(), f"Yes, that is right! {answer}"))
    return turns
