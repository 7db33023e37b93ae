"""The controller's parameters, each with its reason and what showed it.

"Traces" are those of ``macspec bench simulate``; regret is the share of the best fixed setting's
speed that is missed, the worst of all curves and traces.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the controller can be tuned by."""

    allowance: float = 0.008
    """Share of the tokens by which decoding may fall behind plain decoding. Costs are known to a
    few per cent only: with 1% adversaries took up to 2.1%, with 0.8% less than 2%."""
    settled: int = 64
    """Tokens whose allowance is there from the start: one or two failed rounds. It is also the
    assumed length of a reply."""
    credit: float = 32.0
    """Gained plain steps that may be lost again, so that a run of failures does not stop a drafter
    that pays. With 8 the regret was 3.5% where rounds are dear, with 16 7% under load."""
    probing: float = 0.01
    """Share of the tokens that probes may cost. With 0.5% a change was found too late (6% in bursts
    of load), with 2% a useless drafter cost 2%."""
    hysteresis: float = 1.03
    """How much more a deeper round must promise than a shallower one, and any over plain decoding:
    estimates are noisy. With 1.01 and 1.02 the regret was 4.9%, with 1.03 2.4%."""
    memory: float = 400.0
    """Judged tokens that an acceptance cell remembers. With 200 the regret was 4.2%, with 800 2.3%
    once warm."""
    prior: float = 30.0
    """Weight, in judged tokens, of a wider cell beside a narrower one, and of earlier sessions;
    that of the shipped table is a quarter. With 20 the regret was 5.4%, with 50 2.2% once warm."""
    compared: float = 16.0
    """Comparisons with plain steps that a cost remembers; a calibration counts as many. With 8 the
    regret under bursts of load was 4.6%, with 16 3.3%."""
    leap: float = 1.5
    """Most by which one comparison may differ from what is known: a hiccup is no cost."""


PARAMETERS = Parameters()
