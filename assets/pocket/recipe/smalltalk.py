"""Greetings, moods, thanks, goodbyes and easy questions."""

from random import Random

from copying import copying
from phrasebook import phrases
from words import (
    CAPITALS,
    CITIES,
    COLOURS,
    FOODS,
    HOBBIES,
    MEANINGS,
    NAMES,
    OPPOSITES,
    PLURALS,
    SOUNDS,
)

PHRASES = phrases("smalltalk")
Turns = list[tuple[str, str]]
HELLO = PHRASES["hello"]
HELLO_BACK = PHRASES["hello_back"]
HOW = PHRASES["how"]
HOW_BACK = ("I am fine, thank you! How are you?", "I am doing well, thank you. How about you?")
FINE = PHRASES["fine"]
BAD = PHRASES["bad"]
THANKS = PHRASES["thanks"]
WELCOME = PHRASES["welcome"]
BYE = PHRASES["bye"]
BYE_BACK = PHRASES["bye_back"]
OPEN = PHRASES["open"]
UNKNOWN = PHRASES["unknown"]


def hello(rng: Random) -> Turns:
    """A greeting, and how both feel."""
    if rng.random() < 0.35:
        return [(rng.choice(HOW), rng.choice(HOW_BACK))]
    turns = [(rng.choice(HELLO), rng.choice(HELLO_BACK))]
    if rng.random() < 0.25:
        turns.append((rng.choice(HOW[:9]), rng.choice(HOW_BACK)))
    if len(turns) == 2 and rng.random() < 0.7:
        if rng.random() < 0.7:
            turns.append((rng.choice(FINE), "I am glad to hear that! What can I do for you?"))
        else:
            turns.append(
                (rng.choice(BAD), "I am sorry to hear that. Do you want to talk about it?")
            )
    return turns


def between(rng: Random) -> Turns:
    """Some turns about other things, often none."""
    turns: Turns = []
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        turns += rng.choice((easy, opening, copying))(rng)
    return turns


def named(rng: Random) -> Turns:
    """The user tells something about themselves and asks for it later."""
    kind = rng.random()
    if kind < 0.2:
        return life(rng)
    if kind < 0.4:
        return owned(rng)
    name = rng.choice(NAMES)
    answer = rng.choice(PHRASES["named_back"]).format(name)
    turns = [(rng.choice(PHRASES["named"]).format(name), answer), *between(rng)]
    if rng.random() < 0.85:
        turns.append((rng.choice(PHRASES["ask_name"]), f"Your name is {name}."))
    if rng.random() < 0.15:
        other = rng.choice([other for other in NAMES if other != name])
        turns.append(
            (
                rng.choice(("no, my name is {}", "sorry, my name is {}", "now call me {}")).format(
                    other
                ),
                f"All right, {other}! I will call you {other}.",
            )
        )
        turns.append((rng.choice(PHRASES["ask_name"]), f"Your name is {other}."))
    return turns


def life(rng: Random) -> Turns:
    """Name, age and city of the user, and questions about them."""
    facts = {"n": rng.choice(NAMES), "a": rng.randint(6, 90), "c": rng.choice(CITIES)}
    said, answer = rng.choice(PHRASES["life"])
    turns = [(said.format(**facts), answer.format(**facts)), *between(rng)]
    asks = [*PHRASES["life_ask"], [PHRASES["ask_name"], "Your name is {n}."]]
    for asked, told in rng.sample(asks, rng.randint(1, 3)):
        turns.append((rng.choice(asked), told.format(**facts)))
    return turns


def owned(rng: Random) -> Turns:
    """The name of a pet or a person, and a question about it."""
    other, *said = rng.choice(PHRASES["own"])
    name = rng.choice(NAMES)
    answer = rng.choice(PHRASES["own_back"]).format(n=name, o=other)
    turns = [(rng.choice(said).format(n=name), answer), *between(rng)]
    asked = rng.choice(PHRASES["own_ask"]).format(o=other)
    return [*turns, (asked, f"Your {other} is called {name}.")]


def mood(rng: Random) -> Turns:
    """How the user feels, with a fitting answer."""
    if rng.random() < 0.2:
        answer = "I am sorry to hear that. Do you want to talk about it?"
        return [(rng.choice(BAD), answer)]
    words, answers = rng.choice(list(PHRASES["moods"].values()))
    word = rng.choice(words)
    much = "" if " " in word else rng.choice(PHRASES["much"])
    if word in ("great", "wonderful", "fantastic") and much:
        much = "really "
    form = rng.choice(PHRASES["mood_forms"])
    said = form.format(d=much, m=word, w=rng.choice(PHRASES["when"]))
    return [(said, rng.choice(answers).format(m=word))]


def meeting(rng: Random) -> Turns:
    """An introduction without a name, or a request for help."""
    kind = rng.choice(("meet", "help"))
    return [(rng.choice(PHRASES[kind]), rng.choice(PHRASES[kind + "_back"]))]


def liking(rng: Random) -> Turns:
    """What the user or the model likes."""
    what, beast = rng.choice((*FOODS, *HOBBIES)), rng.choice(PHRASES["beasts"])
    if rng.random() < 0.35:
        asked = rng.choice(("do you like {}?", "what do you think of {}?", "do you love {}?"))
        answer = f"I have never met any, but I think {beast} are lovely. Do you like them?"
        return [(asked.format(beast), answer)]
    if rng.random() < 0.5:
        said = rng.choice(PHRASES["i_like"]).format(what)
        return [(said, f"That sounds nice! What do you like most about {what}?")]
    asked = rng.choice(PHRASES["like"]).format(what)
    return [(asked, f"I have never tried {what}, but many people like it. Do you?")]


def easy(rng: Random) -> Turns:
    """A question with one short answer."""
    kind = rng.randrange(8)
    if kind == 0:
        country, city = rng.choice(list(CAPITALS.items()))
        asked = rng.choice(PHRASES["ask_capital"])
        return [(asked.format(country), f"The capital of {country} is {city}.".replace("..", "."))]
    if kind == 1:
        word, other = rng.choice(list(OPPOSITES.items()))
        if rng.random() < 0.5:
            word, other = other, word
        asked = rng.choice(PHRASES["ask_opposite"])
        return [(asked.format(word), f"The opposite of {word} is {other}.")]
    if kind == 2:
        word, other = rng.choice(list(PLURALS.items()))
        asked = rng.choice(
            (
                "what is the plural of {}?",
                "plural of {}?",
                "what's the plural of {}?",
                "tell me the plural of {}",
                "how do I write {} in the plural?",
                "what is more than one {} called?",
            )
        )
        return [(asked.format(word), f"The plural of {word} is {other}.")]
    if kind == 3:
        word, other = rng.choice(list(SOUNDS.items()))
        asked = rng.choice(PHRASES["ask_sound"])
        an = "An" if word[0] in "aeiou" else "A"
        asked = asked.replace("a {}", f"{an.lower()} {{}}")
        return [(asked.format(word), f"{an} {word} says {other}.")]
    if kind in (4, 5):
        word, meaning = rng.choice(list(MEANINGS.items()))
        if rng.random() < 0.3:
            bare = word.removeprefix("a ").removeprefix("the ")
            return [(rng.choice(PHRASES["ask_word"]).format(bare), meaning)]
        return [(rng.choice(PHRASES["ask_meaning"]).format(word), meaning)]
    if kind == 6:
        return liking(rng)
    asked = rng.choice(UNKNOWN).format(
        rng.randint(1900, 2024),
        n=rng.choice(NAMES),
        t=rng.choice(("telephone", "lamp", "car", "radio")),
    )
    return [(asked, "I am sorry, I do not know that. I am a small model and know very few facts.")]


def opening(rng: Random) -> Turns:
    """One of the things that people just say."""
    said, answers = rng.choice(OPEN)
    return [(rng.choice(said), rng.choice(answers))]


def thanks(rng: Random) -> Turns:
    """Thanks and the answer to them."""
    return [(rng.choice(THANKS), rng.choice(WELCOME))]


def bye(rng: Random) -> Turns:
    """A goodbye."""
    return [(rng.choice(BYE), rng.choice(BYE_BACK))]


def favourite(rng: Random) -> Turns:
    """The user's favorite color or food, and a question about it."""
    kind, one, praise = rng.choice(
        (
            ("color", rng.choice(COLOURS), "is a beautiful color!"),
            ("food", rng.choice(FOODS), "is a great choice!"),
            ("hobby", rng.choice(HOBBIES), "sounds like a lot of fun!"),
        )
    )
    said = rng.choice(
        ("my favorite {} is {}", "{1} is my favorite {0}", "the {} I like best is {}")
    ).format(kind, one)
    turns = [(said, f"{one.capitalize()} {praise}")]
    if rng.random() < 0.7:
        turns += between(rng) if rng.random() < 0.5 else []
        asked = rng.choice(
            ("what is my favorite {}?", "which {} do I like best?", "tell me my favorite {}")
        )
        turns.append((asked.format(kind), f"Your favorite {kind} is {one}."))
    return turns
