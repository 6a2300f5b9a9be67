"""`penstock doctor`: what this machine can do, and how to get what is missing."""

from __future__ import annotations

import os

import click

from penstock.cli import options, output
from penstock.testbed.capabilities import Check, examine


@click.command()
@options.as_json
def doctor(as_json: bool) -> int:
    """Show what this machine can do and how to get what is missing.

    Exits with 0 if clusters can be started, with 3 if not.
    """
    checks = examine(os.environ)
    missing = [c for c in checks if not c.ok and c.needed_for == "everything"]
    partly = [c for c in checks if not c.ok and c.needed_for != "everything"]
    sentence = _sentence(missing, partly)
    if as_json:
        output.emit_json({"ready": not missing, "outcome": sentence, "checks": checks})
    else:
        output.outcome(sentence)
        output.table(
            ["", "part", "detected", "needed for"],
            [["✓" if c.ok else "✗", c.name, c.found, c.needed_for] for c in checks],
        )
        for check in (*missing, *partly):
            output.note(f"{check.name}: {check.fix}")
    return 3 if missing else 0


def _sentence(missing: list[Check], partly: list[Check]) -> str:
    if missing:
        return f"No cluster can be started here: {', '.join(c.name for c in missing)} missing."
    if partly:
        lost = ", ".join(dict.fromkeys(c.needed_for for c in partly))
        return f"Clusters on loopback work here; not available: {lost}."
    return "Everything works here: clusters, network emulation, faults, Spark."
