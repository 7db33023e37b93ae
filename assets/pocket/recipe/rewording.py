"""The same request or question in other words."""

import re
from random import Random

from phrasebook import phrases

PHRASES = phrases("conversations")
IMPERATIVES = frozenset(PHRASES["imperatives"])
QUESTIONS = frozenset(PHRASES["questions"])
SHORTER = PHRASES["shorter"]
INDIRECT = PHRASES["indirect"]


def lowered(text: str) -> str:
    """A text that can follow other words."""
    return text if re.match(r"I\b", text) else text[0].lower() + text[1:]


def request(rng: Random, text: str) -> str:
    """An imperative with other words around it."""
    literal = ":" in text or text.split()[0].lower() in ("say", "repeat", "copy", "echo", "type")
    text = lowered(text)
    style = rng.random()
    if style < 0.4:
        text = rng.choice(PHRASES["asking"]) + text.rstrip(".!?")
        return text if literal else text + "?"
    if style < 0.75 or literal:
        return rng.choice(PHRASES["before_request"]) + text
    if style < 0.85:
        text = rng.choice(PHRASES["before_request"]) + text
    ends = PHRASES["after_request"]
    if "please" in text or text.endswith(("for me", "to me")) or " me " in f" {text} ":
        ends = [" now", " if you can"]
    return text.rstrip(".!?") + rng.choice(ends)


def indirect(rng: Random, text: str) -> str | None:
    """A question inside another one, where the words allow it."""
    bare = lowered(text).rstrip("?.! ")
    bare = bare.replace("what's ", "what is ", 1)
    frame = rng.choice(INDIRECT)
    if found := re.fullmatch(r"(what|who|where|how old) (are you|am I)", bare):
        verb, noun = found[2].split()
        return frame.format(f"{found[1]} {noun} {verb}")
    if found := re.fullmatch(r"(what|who|where) is ([^,:?]+)", bare):
        if re.search(r"\b(up|like|going|left|there|or|wrong)\b", found[2]) or len(bare) > 70:
            return None
        return frame.format(f"{found[1]} {found[2]} is")
    if found := re.fullmatch(r"how (?:do|can|could) I ((?!.*\bmy\b)[^,:?]+)", bare):
        return frame.format(f"how to {found[1]}")
    if re.fullmatch(r"how many \w+ are in [\w ]+", bare):
        return frame.format(bare)
    return None


def question(rng: Random, text: str) -> str:
    """A question with other words around or inside it."""
    style = rng.random()
    if style < 0.4 and (other := indirect(rng, text)):
        return other
    if style < 0.6:
        other = re.sub(r"^(do you) (know|like|have|want|need)\b", r"\1 really \2", text)
        other = re.sub(r"^(are you) (?!there|ok)", r"\1 really ", other)
        other = re.sub(r"^(what) (is|are|does)\b", r"\1 exactly \2", other)
        other = re.sub(r"^(how) (do I|does)\b", r"\1 exactly \2", other)
        verb = re.match(r"(can|could|would) you (\w+)", other)
        if verb and verb[2] in IMPERATIVES:
            other = re.sub(r"^(can|could|would) you ", r"\1 you please ", other)
        if other != text:
            return other
    asking = re.match(r"(what is the|what's the|how do I|how many|can you \w+ \w+)", text)
    if asking and style < 0.7 and "please" not in text:
        return text.rstrip("?.! ") + rng.choice((", please?", " please", ", please"))
    return rng.choice(PHRASES["before_question"]) + lowered(text)


def contracted(rng: Random, text: str) -> str:
    """A text with its short forms written long, or the other way round."""
    for long, short in rng.sample(SHORTER, len(SHORTER)):
        one, two = (long, short) if rng.random() < 0.7 else (short, long)
        text = re.sub(rf"\b{one}(?= \w)", two, text)
    return text


def reworded(rng: Random, text: str) -> str:
    """A user's text in other words of the same meaning, or as it was."""
    if len(text) < 3 or re.search(r"\d\s*[-+*/x=^]|[{}\[\]\n]", text):
        return text
    first, count = text.split()[0].lower().rstrip(",.!?"), len(text.split())
    literal = ":" in text or '"' in text
    if not literal and rng.random() < 0.4:
        text = contracted(rng, text)
    if first in IMPERATIVES and count > 1:
        text = request(rng, text)
    elif first in QUESTIONS and count > 1:
        text = question(rng, text)
    elif first in ("i", "i'm", "my", "it", "it's", "this") and count > 2:
        text = rng.choice(PHRASES["before_statement"]) + lowered(text)
        return text
    if count > 2 and rng.random() < 0.12 and not re.match(r"(hi|hey|hello|ok|so|good)\b", text):
        text = rng.choice(PHRASES["greeting"]) + text[0].upper() + text[1:]
    return text
