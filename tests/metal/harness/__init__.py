"""Runs real Metal kernels on any machine: see README.md beside this file."""

from .faults import Fault
from .inline import inline, with_text
from .installed import installed, launching
from .mutants import Case, Mutant
from .running import Outputs, Report, run, run_once

__all__ = [
    "Case",
    "Fault",
    "Mutant",
    "Outputs",
    "Report",
    "inline",
    "installed",
    "launching",
    "run",
    "run_once",
    "with_text",
]
