"""Names that a package loads on first use (PEP 562)."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from penstock.domain.errors import MissingPart


def exports(
    package: str, extras: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that offers what its `if TYPE_CHECKING:` block
    imports: type checkers and this function read the same list.

    `extras`: package or module below `package` → the extra that brings all it needs, which is more
    than what it misses first. The first that fits counts.
    """

    @cache
    def places() -> dict[str, str]:
        body = ast.parse(inspect.getsource(sys.modules[package])).body
        typed = [node for block in body if isinstance(block, ast.If) for node in block.body]
        imports = [node for node in typed if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

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
        has_version = hasattr(sys.modules[package], "__version__")
        return sorted([*places(), *(["__version__"] if has_version else [])])

    return load, listed
