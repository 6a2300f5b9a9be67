"""Libraries that come with an extra: `pip install 'penstock[lake]'`."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.domain.errors import MissingPart


def require(extra: str, *modules: str) -> None:
    """Raise an error that names the extra unless its modules are installed. Imports nothing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingPart(
            f"{', '.join(missing)}: not installed", f"pip install 'penstock[{extra}]'"
        )
