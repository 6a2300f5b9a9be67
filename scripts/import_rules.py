"""The two tables under "What may import what" in ARCHITECTURE.md, as contracts of import-linter.

.venv/bin/python scripts/import_rules.py            write .importlinter
.venv/bin/python scripts/import_rules.py --check    fail if it is not what the tables say
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, RESULT = ROOT / "ARCHITECTURE.md", ROOT / ".importlinter"
PACKAGE = ROOT / "src" / "penstock"
HEADING = "## What may import what"


def tables(text: str) -> Iterator[list[list[str]]]:
    """The tables of the section: rows of cells, without the header."""
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|\n").split("|")]
            for line in block.split("\n")
            if line
        ]
        yield rows[2:]


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)/?`", cell)


def contract(number: int, title: str, sources: list[str], forbidden: list[str]) -> str:
    def lines(modules: list[str]) -> str:
        return "".join(f"\n    {module}" for module in modules)

    return (
        f"\n[importlinter:contract:{number}]\n"
        f"name = {title}\n"
        "type = forbidden\n"
        # What is forbidden to reach by a detour is forbidden to the package on the detour.
        "allow_indirect_imports = True\n"
        f"source_modules ={lines(sources)}\n"
        f"forbidden_modules ={lines(forbidden)}\n"
    )


def rules(text: str) -> str:
    rooms, externals = tables(text)
    may = {names(room)[0]: names(allowed) for room, _, allowed in rooms}
    # What is not built yet has its line already.
    there = [
        room for room in may if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()
    ]
    found = {
        p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()
    }
    if missing := found - set(may) - {"__init__", "__main__"}:
        sys.exit(f"{SOURCE.name}: {HEADING[3:]!r} has no line for {', '.join(sorted(missing))}")
    parts = [
        "# Made by scripts/import_rules.py from ARCHITECTURE.md. Change it there.\n[importlinter]\n"
    ]
    parts.append(
        "root_package = penstock\ninclude_external_packages = True\nexclude_type_checking_imports = True\n"
    )
    number = 0
    for room in there:
        others = [f"penstock.{o}" for o in there if o != room and o not in may[room]]
        if others and "everything" not in may[room]:
            number += 1
            allowed = ", ".join(o for o in may[room] if o in there) or "nothing of ours"
            title = f"{room} imports {allowed}"
            parts.append(contract(number, title, [f"penstock.{room}"], others))
    for title, packages, libraries in externals:
        inside = [p for p in names(packages) if (PACKAGE / p.replace(".", "/")).is_dir()]
        if packages.startswith("all but"):
            inside = [room for room in there if room not in names(packages)]
        number += 1
        parts.append(contract(number, title, [f"penstock.{p}" for p in inside], names(libraries)))
    return "".join(parts)


def main() -> None:
    made = rules(SOURCE.read_text(encoding="utf-8"))
    if "--check" not in sys.argv:
        RESULT.write_text(made, encoding="utf-8")
    elif not RESULT.is_file() or RESULT.read_text(encoding="utf-8") != made:
        sys.exit(f"{RESULT.name} is not what {SOURCE.name} says: run scripts/import_rules.py")


if __name__ == "__main__":
    main()
