"""The command `penstock`: one module per verb. Each parses, calls `penstock.api`, and prints."""

from __future__ import annotations

import sys

from penstock import extras
from penstock.domain.errors import MissingPart


def main() -> None:
    """The script that is installed; in a bare installation it says what to install."""
    try:
        extras.require("cli", "cattrs", "click", "rich", "yaml")
    except MissingPart as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    from penstock.cli.main import main

    main()
