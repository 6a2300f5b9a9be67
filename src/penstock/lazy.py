"""Names that a package loads on first use (PEP 562)."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from penstock.domain.errors import MissingPart


def exports(
    package: str, extras: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that offers what it imports from its own modules
    under `if TYPE_CHECKING:`: type checkers and this function read the same list.

    `extras`: package or module below `package` → the extra that brings all it needs, which is more
    than what it misses first. The first that fits counts.
    """

    @cache
    def places() -> dict[str, str]:
        return dict(_imports(package))

    def load(name: str) -> Any:
        # Python itself asks for names such as __path__, long before anybody uses the package.
        place = None if name.startswith("__") else places().get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(place), name)
        except (MissingPart, ModuleNotFoundError) as error:
            within = f"{place.removeprefix(package)}."
            fitting = (e for part, e in extras.items() if within.startswith(f".{part}."))
            extra = next(fitting, None)
            if extra is None:
                raise
            why = error.message if isinstance(error, MissingPart) else str(error)
            fix = f"pip install 'penstock[{extra}]'"
            raise MissingPart(f"{package}.{name}: {why}", fix) from None

    def listed() -> list[str]:
        return sorted(places())

    return load, listed


def _imports(package: str) -> Iterator[tuple[str, str]]:
    """The names that a package imports from its own modules, and which. Read from its bytecode,
    which has the imports that never run too, since an installation may lack the sources."""
    spec: Any = sys.modules[package].__spec__
    module = ""
    for step in dis.get_instructions(spec.loader.get_code(package)):
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname == "IMPORT_FROM" and module.startswith(f"{package}."):
            yield step.argval, module
