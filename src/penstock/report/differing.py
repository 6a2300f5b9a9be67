"""Which settings differ between runs, and which they share: computed, not declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock import specs
from penstock.domain.run import Experiment

# The label of a run, and what makes a repeat a repeat.
_OWN = ("name", "seed")


def flat(experiment: Experiment) -> dict[str, str]:
    """Every setting by its path in a scenario: settings.linger.ms → "5"."""
    data = specs.to_data(experiment)
    return dict(_leaves({k: v for k, v in data.items() if k not in _OWN}, ""))


def split(
    experiments: Sequence[Experiment],
) -> tuple[dict[str, list[str | None]], dict[str, str]]:
    """(path → its value in each, None where absent; path → the value that all share)."""
    all_flat = [flat(experiment) for experiment in experiments]
    paths = list(dict.fromkeys(path for each in all_flat for path in each))
    differing: dict[str, list[str | None]] = {}
    common: dict[str, str] = {}
    for path in paths:
        values = [each.get(path) for each in all_flat]
        first = values[0]
        if first is not None and all(value == first for value in values):
            common[path] = first
        else:
            differing[path] = values
    return differing, common


def _leaves(data: Any, path: str) -> Iterator[tuple[str, str]]:
    match data:
        case dict():  # nothing, if it is empty: absent is not another value
            for key, item in data.items():
                yield from _leaves(item, f"{path}.{key}" if path else str(key))
        case list() if data and any(isinstance(item, (dict, list)) for item in data):
            for i, item in enumerate(data):
                yield from _leaves(item, f"{path}.{i}")
        case list():
            yield path, ", ".join(_text(item) for item in data)
        case _:
            yield path, _text(data)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
