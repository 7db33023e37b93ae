"""Tables and where to eat."""

from random import Random

from phrasebook import phrases
from tasks import number
from words import CITIES, CUISINES, DAYS, NAMES, RESTAURANTS

PHRASES = phrases("bookings")
Turns = list[tuple[str, str]]
TIMES = PHRASES["times"]


def booking(rng: Random) -> Turns:
    """A table booking: what is missing is asked for, then confirmed and booked."""
    people, day, time = (
        rng.randint(1, 8),
        rng.choice((*DAYS, "today", "tomorrow", "tonight")),
        rng.choice(TIMES),
    )
    place, name = rng.choice(RESTAURANTS), rng.choice(NAMES)
    guests = f"{people} {'person' if people == 1 else 'people'}"
    on = day if day in ("today", "tomorrow", "tonight") else f"on {day}"
    first = rng.choice(PHRASES["booking"])
    known = {what for what in ("people", "day", "time", "place") if rng.random() < 0.45}
    if "people" in known:
        first += f" for {number(rng, people)}"
        first += rng.choice(("", " people" if people > 1 else ""))
    if "place" in known:
        first += f" at {place}"
    if "day" in known:
        first += f" {on}"
    if "time" in known:
        first += f" at {time}"
    turns: Turns = []
    said = first
    steps = (
        (
            "people",
            "Sure! For how many people?",
            (
                f"{people}",
                f"{guests}",
                f"for {number(rng, people)}",
                f"we are {number(rng, people)}",
                f"a table for {people}",
            ),
        ),
        ("day", "For which day?", (f"{on}", f"{day}", f"{on} please", f"{day} would be good")),
        ("time", "At what time?", (f"at {time}", f"{time}", f"{time} please", f"around {time}")),
        (
            "place",
            "Which restaurant would you like?",
            (f"{place}", f"at {place}", f"{place} please", f"let's take {place}"),
        ),
    )
    for what, question, replies in steps:
        if what not in known:
            turns.append((said, question))
            said = rng.choice(replies)
    summary = f"a table for {guests} at {place} {on} at {time}"
    turns.append((said, f"Let me repeat: {summary}. Is that right?"))
    if rng.random() < 0.2:
        other = rng.choice([t for t in TIMES if t != time])
        turns.append(
            (
                rng.choice(
                    ("no, make it {}", "can we change it to {}?", "no, at {}", "sorry, {} please")
                ).format(other),
                (
                    f"Of course. Let me repeat: a table for {guests} at {place} {on} at {other}. Is"
                    " that right?"
                ),
            )
        )
        time = other
    if rng.random() < 0.9:
        turns.append(
            (
                rng.choice(PHRASES["yes"]),
                (
                    f"Done! Your table for {guests} at {place} is booked {on} at {time}. Which name"
                    " should I use?"
                    if rng.random() < 0.5
                    else (
                        f"Done! Your table for {guests} at {place} is booked {on} at {time}. Enjoy"
                        " your meal!"
                    )
                ),
            )
        )
        if turns[-1][1].endswith("use?"):
            turns.append(
                (
                    rng.choice(
                        (name, f"{name} please", f"my name is {name}", f"on the name {name}")
                    ),
                    f"Thank you, {name}. The table is booked under your name. Enjoy your meal!",
                )
            )
    return turns


def food(rng: Random) -> Turns:
    """Where to eat."""
    cuisine, place, city = rng.choice(CUISINES), rng.choice(RESTAURANTS), rng.choice(CITIES)
    asked = rng.choice(PHRASES["food"])
    kind = f"{'an' if cuisine[0] in 'AI' else 'a'} {cuisine} restaurant"
    answer = f"How about {place}? It is {kind} in {city}. Shall I book a table?"
    turns = [(asked.format(cuisine, city), answer)]
    if rng.random() < 0.6:
        turns.append((rng.choice(("yes please", "yes", "sure")), "Sure! For how many people?"))
        people, time = rng.randint(2, 6), rng.choice(TIMES)
        turns.append((number(rng, people), "At what time?"))
        turns.append(
            (
                time,
                f"Let me repeat: a table for {people} people at {place} at {time}. Is that right?",
            )
        )
        turns.append(
            (
                "yes",
                (
                    f"Done! Your table for {people} people at {place} is booked at {time}. Enjoy"
                    " your meal!"
                ),
            )
        )
    else:
        turns.append(
            (
                rng.choice(("no thanks", "no", "not now")),
                "All right. Is there anything else I can do?",
            )
        )
    return turns
