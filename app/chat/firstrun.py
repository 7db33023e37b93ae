"""What somebody who has no pair of their own should know."""

from __future__ import annotations

from dataclasses import dataclass

from macspec.models.catalog import Entry, best
from macspec.models.machine import GIB, unified_memory, working_set

WHAT = (
    "macspec is a chat with language models that run on this machine. A small draft model guesses "
    "ahead, the large target model checks several guesses in one pass: the text is the target's "
    "own, only sooner. The panel shows how that goes, and you can turn it while it writes."
)

PRIVATE = "Nothing you write leaves this machine."


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pair that fits this machine best."""

    entry: Entry | None
    """None: none of the catalogue does."""
    memory: int
    """Bytes of the machine."""

    def lines(self) -> list[str]:
        """What to say about it, a sentence or two each."""
        has = f"{self.memory / GIB:.0f} GB of memory"
        built_in = "The pair that is built in answers at once, but is tiny: small talk, not facts."
        if self.entry is None:
            return [built_in, f"No pair of the catalogue fits this machine ({has})."]
        it = self.entry
        draft = "" if it.draft is None else f" with the draft model {it.draft}"
        size = "" if it.download is None else f" It would download {it.download:.1f} GB"
        needs = "" if it.memory_8k is None else f" and need {it.memory_8k:.1f} GB of memory"
        return [
            built_in,
            f"A real one that fits this machine ({has}) is {it.name}: {it.target}{draft}."
            + (f"{size}{needs}." if size else ""),
        ]


def proposal() -> Proposal:
    """The one for this machine; quick, and asks nobody."""
    memory = unified_memory()
    return Proposal(best(memory, working_set()), memory)
