"""What somebody new is told: what macspec is, and which pair would suit this machine."""

from __future__ import annotations

from macspec.models.catalog import Entry, best, drafts_with
from macspec.models.machine import GIB, unified_memory, working_set
from macspec.models.sidecars import label

WHAT = (
    "macspec is a chat with language models that run on this machine. A small draft model guesses "
    "ahead, and the large target model verifies several guesses in one pass: the same text, just "
    "faster. The panel shows how that works out, and you can adjust it while a reply streams."
)

IN_BRIEF = "A chat with models on this machine: the same text, just faster."

PRIVATE = "Nothing you write leaves this machine."


def proposal() -> list[str]:
    """What to say about a pair for this machine, a sentence or two each; quick and offline."""
    memory, limit = unified_memory(), working_set()
    return proposed(best(memory, limit), memory, best(memory, limit, "code"))


def proposed(entry: Entry | None, memory: int, code: Entry | None = None) -> list[str]:
    """The same for the best pair of the catalogue (None: none fits), the machine's bytes, and the
    best pair to write code."""
    has = f"{memory / GIB:.0f} GB of memory"
    built_in = "The built-in pair starts instantly but only does small talk."
    if entry is None:
        return [built_in, f"No pair in the catalogue fits this machine ({has})."]
    head, name = drafts_with(entry) or (None, None)
    draft = "" if name is None else f" with the {label(head) if head else 'draft model'} {name}"
    size = "" if entry.download is None else f" It would download {entry.download:.1f} GB"
    needs = "" if entry.memory_8k is None else f" and need {entry.memory_8k:.1f} GB of memory"
    return [
        built_in,
        f"The recommended pair for this machine ({has}) is {entry.name}: {entry.target}{draft}."
        + (f"{size}{needs}." if size else "")
        + (f" To write code, {code.name}." if code is not None and code != entry else ""),
    ]
