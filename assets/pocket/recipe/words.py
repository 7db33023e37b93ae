"""Words that the generator fills its templates with."""

from phrasebook import phrases

PHRASES = phrases("words")
NAMES = PHRASES["names"]
ANIMALS = PHRASES["animals"]
PEOPLE = PHRASES["people"]
PLACES = PHRASES["places"]
THINGS = PHRASES["things"]
TRAITS = PHRASES["traits"]
COLOURS = PHRASES["colours"]
FRUITS = PHRASES["fruits"]
OBJECTS = PHRASES["objects"]
DAYS = PHRASES["days"]
MONTHS = PHRASES["months"]
NUMBERS = PHRASES["numbers"]
CITIES = PHRASES["cities"]
FOODS = PHRASES["foods"]
CUISINES = PHRASES["cuisines"]
RESTAURANTS = PHRASES["restaurants"]
HOBBIES = PHRASES["hobbies"]
EASY = PHRASES["easy"]
KINDS = PHRASES["kinds"]
CAPITALS = PHRASES["capitals"]
OPPOSITES = PHRASES["opposites"]
PLURALS = PHRASES["plurals"]
SOUNDS = PHRASES["sounds"]
MEANINGS = PHRASES["meanings"]
