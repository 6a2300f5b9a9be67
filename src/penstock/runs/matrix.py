"""A scenario's matrix as cells: one run spec per combination that its design asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from penstock import specs
from penstock.domain.axis import text_of, untied
from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.scenario import Scenario

# Below these, the rest of a path is one name: Kafka's own names have dots in them.
_OPEN = ("settings", "consumers.settings", "topic.config", "cluster.properties")
_OWN = {f.name for f in fields(Scenario)} - {f.name for f in fields(RunSpec)}


@dataclass(frozen=True)
class Cell:
    """One run of a campaign that is to be made."""

    number: int  # of the combination, from 1
    repeat: int  # from 0
    values: Mapping[str, str]  # axis → value, as text
    spec: RunSpec
    is_again: bool = False  # the first one once more, at the end

    @property
    def label(self) -> str:
        """Short and for people: acks=all, size_bytes=100."""
        text = ", ".join(f"{short(path)}={value}" for path, value in self.values.items())
        return f"{text}, again" if self.is_again else text

    @property
    def folder(self) -> str:
        return (
            f"{self.number:03d}-again" if self.is_again else f"{self.number:03d}-r{self.repeat + 1}"
        )


def short(path: str) -> str:
    """The name of an axis without where it belongs: settings.linger.ms → linger.ms."""
    for prefix in _OPEN:
        if path.startswith(f"{prefix}."):
            return path.removeprefix(f"{prefix}.")
    *_, parent, last = ("", *path.split("."))
    # `share` or `ms` alone says nothing.
    return f"{parent}.{last}" if len(last) <= 5 and parent else last


def cells(scenario: Scenario, source: str) -> tuple[Cell, ...]:
    """Every combination of the design × repeat. Repeats come last, so that each spreads over the whole time; the
    very last is the first cell again, unless the scenario does without.

    Every cell is checked now: a mistake in the last one must not show after an hour.
    """
    base = {k: v for k, v in specs.to_data(scenario).items() if k not in _OWN}
    combinations = scenario.design.combinations(scenario.matrix, scenario.seed)
    made: list[Cell] = []
    for repeat in range(scenario.repeats):
        for number, values in enumerate(combinations, 1):
            data = base
            for path, value in values.items():
                own, tied = untied(value)
                for changed, new in {path: own, **tied}.items():
                    data = _with(data, _steps(changed), new, changed)
            texts = {path: text_of(value) for path, value in values.items()}
            where = ", ".join(f"{path}={text}" for path, text in texts.items())
            spec = specs.parse(
                {**data, "seed": scenario.seed + repeat},
                RunSpec,
                source=f"{source} (matrix: {where})" if where else source,
            )
            made.append(Cell(number, repeat, texts, spec))
    if scenario.repeat_first and len(combinations) > 1:
        made.append(replace(made[0], is_again=True))
    return tuple(made)


def _steps(path: str) -> list[str]:
    for prefix in _OPEN:
        if path.startswith(f"{prefix}."):
            return [*prefix.split("."), path.removeprefix(f"{prefix}.")]
    return path.split(".")


def _with(data: Any, steps: list[str], value: object, path: str) -> Any:
    """A copy of `data` with one place changed; what is missing on the way there is made."""
    step, *rest = steps
    if isinstance(data, list):
        if not step.isdigit() or int(step) >= len(data):
            raise BadInput(f"matrix.{path}: {step!r} is not an index of a list of {len(data)}")
        place = int(step)
        new = _with(data[place], rest, value, path) if rest else value
        return [*data[:place], new, *data[place + 1 :]]
    if not isinstance(data, Mapping):
        raise BadInput(f"matrix.{path}: {step!r} cannot be set: its parent has no fields")
    return {**data, step: _with(data.get(step, {}), rest, value, path) if rest else value}
