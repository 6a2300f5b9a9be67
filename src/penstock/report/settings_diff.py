"""Which settings differ between runs, and which they share: computed, not declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock import specs
from penstock.domain.axis import text_of
from penstock.domain.run import RunSpec

# The label of a run, and what makes a repeat a repeat.
_OWN = ("name", "seed")


def flat(spec: RunSpec) -> dict[str, str]:
    """Every setting by its path in a scenario: settings.linger.ms → "5"."""
    data = specs.to_data(spec)
    return dict(_leaves({k: v for k, v in data.items() if k not in _OWN}, ""))


def split(run_specs: Sequence[RunSpec]) -> tuple[dict[str, list[str | None]], dict[str, str]]:
    """(path → its value in each, None where absent; path → the value that all share)."""
    all_flat = [flat(spec) for spec in run_specs]
    paths = list(dict.fromkeys(path for settings in all_flat for path in settings))
    values = {path: [settings.get(path) for settings in all_flat] for path in paths}
    common = {path: all_flat[0][path] for path in paths if len(set(values[path])) == 1}
    return {path: values[path] for path in paths if path not in common}, common


def _leaves(data: Any, path: str) -> Iterator[tuple[str, str]]:
    match data:
        case dict():  # nothing, if it is empty: absent is not another value
            for key, item in data.items():
                yield from _leaves(item, f"{path}.{key}" if path else str(key))
        case list() if data and any(isinstance(item, (dict, list)) for item in data):
            for i, item in enumerate(data):
                yield from _leaves(item, f"{path}.{i}")
        case list():
            yield path, ", ".join(text_of(item) for item in data)
        case _:
            yield path, text_of(data)
