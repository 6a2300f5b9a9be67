"""Plug-ins: the kinds of a word, from Penstock's own modules and from other installed packages.

A kind is a class with its name in `kind`, below the abstract class of its group. Penstock's own are
found by importing the modules beside that class; another package names its own in an entry point of
the group, with the same name. Code of another package is loaded when its kind is asked for, not
before, so a broken package stops only those who use it. docs/plugins.md has an example.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import BadInput, unknown_choice

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Group of entry points → the abstract class, in the package whose modules are Penstock's own kinds.
WORDS = {
    "penstock.adaptive_policies": "penstock.producer.policies:AdaptivePolicy",
    "penstock.arrivals": "penstock.domain.arrivals:Arrivals",
    "penstock.contents": "penstock.load.contents:Content",
    "penstock.decoders": "penstock.lake.decoders:Decoder",
    "penstock.delays": "penstock.domain.network:Delay",
    "penstock.designs": "penstock.domain.designs:Design",
    "penstock.experiments": "penstock.runs.experiments.kinds:ExperimentKind",
    "penstock.faults": "penstock.testbed.faults:Fault",
    "penstock.losses": "penstock.domain.network:Loss",
    "penstock.packing": "penstock.autoscaler.core.packing:Algorithm",
    "penstock.policies": "penstock.autoscaler.core.policies:Policy",
    "penstock.producers": "penstock.load.producers:ProducerKind",
    "penstock.readers": "penstock.load.readers:ReaderKind",
    "penstock.shapes": "penstock.domain.shapes:Shape",
    "penstock.sizes": "penstock.domain.sizes:Sizes",
    "penstock.strategies": "penstock.planner.strategies:Strategy",
}


def find(group: str, name: str) -> Any:
    """The class of that name, or None. Penstock's own come first."""
    if (own := _own(group).get(name)) is not None:
        return own
    entries = [entry for entry in _entries(group) if entry.name == name]
    if len(entries) > 1:
        titles = ", ".join(map(_title, entries))
        raise BadInput(
            f"two packages provide a plug-in of the same name: {titles}", "uninstall one"
        )
    return _load(entries[0]) if entries else None


def get(group: str, name: str) -> Any:
    """The class of that name."""
    if (plugin := find(group, name)) is None:
        raise BadInput(f"{group}: {name!r} {unknown_choice(name, names(group))}")
    return plugin


def names(group: str) -> list[str]:
    """The names of all. Loads no code of other packages."""
    return sorted({*_own(group), *(entry.name for entry in _entries(group))})


def every(group: str) -> dict[str, Any]:
    """All of them by name; raises for one that cannot be loaded or whose name is taken."""
    plugins = dict(_own(group))
    for entry in _entries(group):
        if entry.name in plugins:
            raise BadInput(f"{_title(entry)} has a name that is taken", "uninstall that package")
        plugins[entry.name] = _load(entry)
    return dict(sorted(plugins.items()))


def below(word: Any, package: str = "") -> dict[str, Any]:
    """The kinds of an abstract class that are imported by now, those of `package` only."""
    kinds: dict[str, Any] = {}
    for subclass in word.__subclasses__():
        # Of its own: a kind refined by a subclass is still one kind.
        if (name := vars(subclass).get("kind")) and subclass.__module__.startswith(package):
            _add(kinds, name, subclass)
        for name, further in below(subclass, package).items():
            _add(kinds, name, further)
    return dict(sorted(kinds.items()))


def _add(kinds: dict[str, Any], name: str, kind: Any) -> None:
    if (other := kinds.setdefault(name, kind)) is not kind:
        raise TypeError(f"{kind.__module__} and {other.__module__} both have kind = {name!r}")


def title(plugin: Any) -> str | None:
    """A class of another package in a message; None for one of Penstock's own."""
    if plugin.__module__.partition(".")[0] == "penstock":
        return None
    group, name = getattr(plugin, "plugin_group", None), getattr(plugin, "kind", None)
    entries = [entry for entry in _entries(group) if entry.name == name] if group and name else []
    return _title(entries[0]) if entries else f"{plugin.__module__}.{plugin.__qualname__}"


@cache
def _own(group: str) -> dict[str, Any]:
    package = import_module(WORDS[group].partition(":")[0])
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return below(_word(group), f"{package.__name__}.")


def _word(group: str) -> Any:
    module, _, name = WORDS[group].partition(":")
    return getattr(import_module(module), name)


def _entries(group: str) -> tuple[EntryPoint, ...]:
    # Here, since it takes longer to import than all of this package, and Penstock's own kinds do
    # without.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


def _load(entry: EntryPoint) -> Any:
    # Here, since values look for their kinds in this module.
    from penstock.domain.plugin_class import REPAIR, flaw_of

    word = _word(entry.group)
    try:
        plugin = entry.load()
    except (Exception, SystemExit) as error:  # whatever the code of others does when imported
        problem = f"{type(error).__name__}: {error}"
        raise BadInput(f"{_title(entry)} cannot be loaded: {problem}", REPAIR) from error
    if flaw := flaw_of(plugin, word, entry.name, WORDS[entry.group]):
        raise BadInput(f"{_title(entry)} {flaw.text}", flaw.fix)
    return plugin


def _title(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    return f"the plug-in {entry.name} = {entry.value} ({entry.group}) of {package}"
