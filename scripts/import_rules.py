"""The two tables under "What may import what" in ARCHITECTURE.md, as contracts of import-linter.

.venv/bin/python scripts/import_rules.py            write .importlinter
.venv/bin/python scripts/import_rules.py --check    fail if it is not what the tables say
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, RESULT = ROOT / "ARCHITECTURE.md", ROOT / ".importlinter"
PACKAGE = ROOT / "src" / "penstock"
HEADING = "## What may import what"

# Rows of cells.
Table = Sequence[Sequence[str]]


def tables(text: str) -> Iterator[Table]:
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
    return re.findall(r"`([\w.*]+)/?`", cell)


@dataclass(frozen=True)
class Contract:
    """What import-linter enforces: these modules do not import those."""

    title: str
    sources: Sequence[str]
    forbidden: Sequence[str]
    is_direct: bool = False  # they may import what imports those
    is_itself: bool = False  # the forbidden modules, not what lies in them

    def text(self, number: int) -> str:
        def listed(modules: Sequence[str]) -> str:
            return "".join(f"\n    {module}" for module in modules)

        return (
            f"\n[importlinter:contract:{number}]\n"
            f"name = {self.title}\n"
            "type = forbidden\n"
            + "allow_indirect_imports = True\n" * self.is_direct
            + "as_packages = False\n" * self.is_itself
            + f"source_modules ={listed(self.sources)}\n"
            f"forbidden_modules ={listed(self.forbidden)}\n"
        )


def is_there(name: str) -> bool:
    path = PACKAGE / name.replace(".", "/")
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()


def check_names(may: Mapping[str, Sequence[str]], others: Sequence[str]) -> None:
    """Every package has a line, and every name in the tables is a package: a misspelt one would
    be a rule about nothing."""
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or is_there(p.name)}
    if missing := found - set(may) - {"__init__", "__main__"}:
        sys.exit(f"{SOURCE.name}: {HEADING[3:]!r} has no line for {', '.join(sorted(missing))}")
    named = {*may, *others, *(name for allowed in may.values() for name in allowed)}
    if wrong := sorted(name for name in named - {"everything"} if not is_there(name)):
        sys.exit(
            f"{SOURCE.name}: {HEADING[3:]!r} names {', '.join(wrong)}, which {PACKAGE.name} does "
            "not have; correct the name"
        )


def check_order(may: Mapping[str, Sequence[str]]) -> None:
    """No package may import one that may, directly or by way of others, import it."""
    graph = {
        room: set(may) - {room} if "everything" in allowed else allowed
        for room, allowed in may.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # Reversed, so that each may import the next.
        cycle = " → ".join(reversed(error.args[1]))
        sys.exit(
            f"{SOURCE.name}: {HEADING[3:]!r} lets packages import each other: {cycle}; "
            "forbid one of these"
        )


def package_contracts(may: Mapping[str, Sequence[str]]) -> Iterator[Contract]:
    """What the first table forbids. Directly: whom a package may import may import others."""
    for room, allowed in may.items():
        others = [f"penstock.{o}" for o in may if o != room and o not in allowed]
        if others and "everything" not in allowed:
            title = f"{room} imports {', '.join(allowed) or 'nothing of ours'}"
            yield Contract(title, [f"penstock.{room}"], others, is_direct=True)


def special_contracts(rows: Table, rooms: Sequence[str]) -> Iterator[Contract]:
    """What the second table forbids: to named packages also by way of others, since no other rule
    may forbid the detour (of `autoscaler.core` through the rest of `autoscaler`); to all but some,
    directly, since those exist to be used."""
    for title, packages, modules in rows:
        is_all = packages.startswith("all but")
        inside = [r for r in rooms if r not in names(packages)] if is_all else names(packages)
        sources, forbidden = [f"penstock.{p}" for p in inside], names(modules)
        is_root = forbidden == ["penstock"]
        if is_root:  # which all of these lie in, so each module is meant, and the root alone
            sources = [module for source in sources for module in (source, f"{source}.**")]
        yield Contract(title, sources, forbidden, is_direct=is_all, is_itself=is_root)


def rules(text: str) -> str:
    packages, special = tables(text)
    may = {names(room)[0]: names(allowed) for room, _, allowed in packages}
    sources = [name for _, inside, _ in special for name in names(inside)]
    ours = [m for _, _, modules in special for m in names(modules) if m.startswith("penstock.")]
    check_names(may, [*sources, *(m.removeprefix("penstock.").removesuffix(".*") for m in ours)])
    check_order(may)
    contracts = [*package_contracts(may), *special_contracts(special, list(may))]
    return (
        "# Made by scripts/import_rules.py from ARCHITECTURE.md. Change it there.\n"
        "[importlinter]\n"
        "root_package = penstock\n"
        "include_external_packages = True\n"
        "exclude_type_checking_imports = True\n"
        + "".join(contract.text(number) for number, contract in enumerate(contracts, 1))
    )


def main() -> None:
    made = rules(SOURCE.read_text(encoding="utf-8"))
    if "--check" not in sys.argv:
        RESULT.write_text(made, encoding="utf-8")
    elif not RESULT.is_file() or RESULT.read_text(encoding="utf-8") != made:
        sys.exit(f"{RESULT.name} is not what {SOURCE.name} says: run scripts/import_rules.py")


if __name__ == "__main__":
    main()
