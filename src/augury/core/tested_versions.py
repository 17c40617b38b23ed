"""Versions of frameworks that this Augury is tested with."""

from __future__ import annotations

TESTED = {"torch": ("2.13",)}
"""Major and minor numbers. The extras of the package require the same ones."""


def is_tested(framework: str, version: str) -> bool:
    major, _, rest = version.partition(".")
    return f"{major}.{rest.partition('.')[0]}" in TESTED[framework]


def tested_versions(framework: str) -> str:
    return ", ".join(TESTED[framework])
