"""`penstock doctor`: what this machine can do, and how to get what is missing."""

from __future__ import annotations

import click

from penstock.api import machine
from penstock.cli import options, output
from penstock.domain.errors import MissingPart


@click.command()
@options.as_json
def doctor(as_json: bool) -> int:
    """Show what this machine can do and how to get what is missing.

    Exits with 0 if clusters can be started, with 3 if not.
    """
    able = machine.doctor()
    if as_json:
        output.emit_json({"ready": able.is_ready, "outcome": able.outcome, "checks": able.checks})
    else:
        output.outcome(able.outcome)
        output.table(
            ["", "part", "detected", "needed for"],
            [["✓" if c.ok else "✗", c.name, c.found, c.needed_for] for c in able.checks],
        )
        for check in (*able.missing, *able.partly):
            output.note(f"{check.name}: {check.fix}")
    return 0 if able.is_ready else MissingPart.exit_code
