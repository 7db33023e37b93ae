"""Greetings, moods, thanks, goodbyes and easy questions."""

from random import Random

from phrasebook import phrases
from words import CAPITALS, COLOURS, FOODS, HOBBIES, MEANINGS, NAMES, OPPOSITES, PLURALS, SOUNDS

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


def named(rng: Random) -> Turns:
    """The user says a name and asks for it later."""
    name = rng.choice(NAMES)
    said = rng.choice(PHRASES["named"])
    turns = [(said.format(name), f"Nice to meet you, {name}! How can I help you?")]
    if rng.random() < 0.5:
        turns += easy(rng)
    if rng.random() < 0.75:
        turns.append((rng.choice(PHRASES["ask_name"]), f"Your name is {name}."))
    return turns


def mood(rng: Random) -> Turns:
    return [(rng.choice(BAD), "I am sorry to hear that. Do you want to talk about it?")]


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
            ("what is the plural of {}?", "plural of {}?", "what's the plural of {}?")
        )
        return [(asked.format(word), f"The plural of {word} is {other}.")]
    if kind == 3:
        word, other = rng.choice(list(SOUNDS.items()))
        asked = rng.choice(PHRASES["ask_sound"])
        said = f"A {word} says {other}."
        return [(asked.format(word), said.replace("A owl", "An owl"))]
    if kind in (4, 5):
        word, meaning = rng.choice(list(MEANINGS.items()))
        asked = rng.choice(PHRASES["ask_meaning"])
        return [(asked.format(word), meaning)]
    if kind == 6:
        what = rng.choice((*FOODS, *HOBBIES))
        like = rng.choice(
            ("do you like {}?", "what do you think about {}?", "I like {}", "I love {}")
        )
        if like.startswith("I"):
            return [(like.format(what), f"That sounds nice! What do you like most about {what}?")]
        return [(like.format(what), f"I have never tried {what}, but many people like it. Do you?")]
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
    return [(rng.choice(THANKS), rng.choice(WELCOME))]


def bye(rng: Random) -> Turns:
    return [(rng.choice(BYE), rng.choice(BYE_BACK))]


def favourite(rng: Random) -> Turns:
    colour, food = rng.choice(COLOURS), rng.choice(FOODS)
    if rng.random() < 0.5:
        turns = [(f"my favorite color is {colour}", f"{colour.capitalize()} is a beautiful color!")]
        if rng.random() < 0.7:
            turns.append(("what is my favorite color?", f"Your favorite color is {colour}."))
        return turns
    turns = [(f"my favorite food is {food}", f"{food.capitalize()} is a great choice!")]
    if rng.random() < 0.7:
        turns.append(("what is my favorite food?", f"Your favorite food is {food}."))
    return turns
