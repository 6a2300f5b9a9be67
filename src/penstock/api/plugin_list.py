"""Public API: the plug-ins that are installed."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated

from penstock.domain.errors import BadInput, MissingPart
from penstock.domain.plugins import WORDS, find, names
from penstock.domain.value import Doc, Value

_PREFIX = "penstock."


@dataclass(frozen=True, kw_only=True)
class Plugin(Value):
    """A kind of a plug-in group."""

    group: Annotated[str, Doc("such as arrivals; its entry points are penstock.arrivals")]
    name: Annotated[str, Doc("its kind in files")]
    module: str = ""
    summary: Annotated[str, Doc("the first sentence of its docstring")] = ""
    problem: Annotated[str, Doc("why it cannot be used; empty if it can")] = ""


def plugins(group: str | None = None) -> tuple[Plugin, ...]:
    """The kinds of a group such as `arrivals`, or of all; also those of other packages."""
    groups = [name.removeprefix(_PREFIX) for name in WORDS]
    if group is not None:
        wanted = group.removeprefix(_PREFIX) if isinstance(group, str) else group
        if wanted not in groups:
            raise BadInput(
                f"{group!r} is not a group of plug-ins", f"use one of {', '.join(groups)}"
            )
        groups = [wanted]
    return tuple(_plugin(name, kind) for name in groups for kind in _kinds(name))


def _kinds(group: str) -> list[str]:
    try:
        return names(f"{_PREFIX}{group}")
    except MissingPart:  # an extra that is not installed; its kinds are not either
        return []


def _plugin(group: str, kind: str) -> Plugin:
    try:
        found = find(f"{_PREFIX}{group}", kind)
    except BadInput as error:
        return Plugin(group=group, name=kind, problem=error.message)
    paragraph = " ".join((getdoc(found) or "").partition("\n\n")[0].split())
    summary = paragraph.partition(". ")[0]
    return Plugin(group=group, name=kind, module=found.__module__, summary=summary)
