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
    for count in range(rng.choice((1, 1, 1, 2, 2, 3))):
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
        if count and rng.random() < 0.8:
            asked, text = more(rng, MORE), told(rng)
        turns.append((asked, text))
    if rng.random() < 0.15:
        turns.append((rng.choice(PHRASES["praise_only"]), rng.choice(PHRASES["praise_back"])))
        if rng.random() < 0.6:
            asked = rng.choice(("yes", "yes please", "sure", "ok", "of course", "please do"))
            turns.append((asked, told(rng)))
    return turns


def more(rng: Random, asks: list[str]) -> str:
    """A wish for another one, often with praise before it."""
    asked = rng.choice(asks)
    if rng.random() < 0.5:
        asked = f"{rng.choice(PHRASES['praise'])}{rng.choice((', ', '! ', '. '))}{asked}"
    return asked


def poem(rng: Random) -> Turns:
    """A poem, about anything or about what the user names."""
    fill = {
        "thing": rng.choice(("sun", "moon", "river", "sea", "spring", "summer", "star", "rain")),
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
    """Jokes, and what is said about them."""
    first, *others = rng.sample(JOKES, rng.choice((1, 1, 2, 3)))
    turns = [(rng.choice(PHRASES["joke"]), first)]
    turns += [(rng.choice(PHRASES["more_jokes"]), other) for other in others]
    style = rng.random()
    if style < 0.45:
        turns.append((rng.choice(PHRASES["laughs"]), rng.choice(PHRASES["laughs_back"])))
    elif style < 0.55:
        answer = "Sorry! I am better at short stories than at jokes."
        turns.append((rng.choice(PHRASES["no_laughs"]), answer))
    return turns


def riddle(rng: Random) -> Turns:
    """A riddle, and its answer from one of the two."""
    asked, answer = rng.choice(RIDDLES)
    turns = [(rng.choice(PHRASES["riddle"]), asked)]
    if rng.random() < 0.6:
        turns.append((rng.choice(PHRASES["give_up"]), f"It is {answer[0].lower()}{answer[1:]}"))
    else:
        guess = answer.rstrip("!").lower()
        said = rng.choice(("{}", "is it {}?", "I think it is {}", "{}, right?")).format(guess)
        turns.append((said, f"Yes, that is right! {answer}"))
    return turns
