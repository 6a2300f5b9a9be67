"""The documented schema of traces is the one that is written."""

from __future__ import annotations

from pathlib import Path

from penstock.domain.trace import TRACES

PAGE = Path(__file__).parents[2] / "docs" / "run-directory.md"


def test_every_column_is_documented_as_it_is() -> None:
    text = PAGE.read_text()
    for name, columns in TRACES.items():
        section = text.partition(f"**{name}**")[2].partition("\n**")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert rows == [
            f"| `{c.name}` | {c.type}{', may be empty' if c.nullable else ''} | {c.doc} |"
            for c in columns
        ]
