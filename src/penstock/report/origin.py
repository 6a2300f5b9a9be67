"""What explains the runs of a page: settings, how the load was generated, versions, machine."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import specs
from penstock.report import differing, numbers, tables
from penstock.report.conditions import conditions
from penstock.report.markup import Markup, folded, join, section, table, tag
from penstock.report.shown import Shown, Side
from penstock.report.tables import Cell, Table


def settings(sides: Sequence[Side]) -> Markup:
    different, common = differing.split([side.runs[0].run.experiment for side in sides])
    content: list[Markup] = []
    if len(sides) > 1:
        if different:
            turned = len(sides) > tables.MOST_COLUMNS
            labels = [side.label for side in sides]
            rows: list[list[str | Cell]] = [
                [path, *(_or_absent(v) for v in values)] for path, values in different.items()
            ]
            found = Table(["setting", *labels], rows)
            if turned:
                columns = [str(row[0]) for row in rows]
                by_side: list[list[str | Cell]] = [
                    [label, *(row[i + 1] for row in rows)] for i, label in enumerate(labels)
                ]
                found = Table(["run", *columns], by_side)
            content.append(table(found, "Settings that differ"))
        else:
            content.append(tag("p", "The settings do not differ."))
    rows = [[path, value] for path, value in common.items()]
    title = "Settings in common" if len(sides) > 1 else "All settings, defaults included"
    content.append(
        folded(f"{title} ({len(rows)})", table(Table(["setting", "value"], rows), title))
    )
    for side in sides:
        written = specs.dump_yaml(side.runs[0].run.experiment)
        name = "The scenario as YAML" if len(sides) == 1 else f"The scenario as YAML: {side.label}"
        content.append(folded(name, tag("pre", tag("code", written))))
    return section("settings", "Settings", *content)


def _or_absent(value: str | None) -> str:
    return "absent" if value is None else value


def evidence(runs: Sequence[Shown]) -> Markup:
    """How warm the cluster was, how well the load was generated, on what, and with what."""
    content = []
    if (found := conditions(runs)) is not None:
        caption = "The cluster when the load began, whether the load came to rest, and the observer"
        drawn = table(found, caption)
        # Runs are rows if there are many of them.
        is_long = len(runs) > tables.MOST_COLUMNS
        content.append(folded(f"Conditions of all {len(runs)} runs", drawn) if is_long else drawn)
    content += [_generators(runs), _provenance(runs)]
    return section("evidence", "How it was measured", *content)


def _generators(runs: Sequence[Shown]) -> Markup:
    rows: list[list[str | Cell]] = []
    for shown in runs:
        for p in shown.run.producers:
            rows.append(
                [
                    shown.label,
                    f"producer {p.producer}",
                    numbers.count(p.scheduled),
                    numbers.count(p.sent),
                    numbers.significant(p.lag_p50_us),
                    numbers.significant(p.lag_p99_us),
                    numbers.significant(p.lag_max_us),
                    numbers.significant(p.queue_full_s),
                    numbers.count(p.retries),
                    numbers.significant(p.cpu_s),
                ]
            )
    readers: list[list[str | Cell]] = [
        [
            shown.label,
            f"consumer {c.consumer}",
            numbers.count(c.received),
            numbers.count(c.rebalances),
            numbers.significant(c.cpu_s),
            "; ".join(c.errors) or "none",
        ]
        for shown in runs
        for c in shown.run.consumers
    ]
    parts: list[Markup] = []
    if rows:
        columns = [
            "run", "process", "scheduled", "sent", "lag p50, µs", "lag p99, µs", "lag max, µs",
            "queue full, s", "requests sent again", "CPU, s",
        ]  # fmt: skip
        caption = "How well the generator held its schedule: lag is its own delay"
        parts.append(_maybe_folded("Producers", Table(columns, rows), caption))
    if readers:
        columns = ["run", "process", "received", "rebalances", "CPU, s", "errors"]
        parts.append(_maybe_folded("Consumers", Table(columns, readers), "What the readers did"))
    return join(parts)


def _maybe_folded(title: str, given: Table, caption: str) -> Markup:
    drawn = table(given, caption)
    return drawn if len(given.rows) <= 8 else folded(f"{title} ({len(given.rows)})", drawn)


def _provenance(runs: Sequence[Shown]) -> Markup:
    """Seed, versions and machine: one column if all runs agree, else one per run."""
    facts = [_facts(shown) for shown in runs]
    names = list(dict.fromkeys(name for each in facts for name in each))
    same = [n for n in names if len({each.get(n) for each in facts}) == 1]
    rows: list[list[str | Cell]] = [[name, facts[0].get(name, "")] for name in same]
    parts = [table(Table(["of all runs" if len(runs) > 1 else "this run", ""], rows), "Origin")]
    other = [name for name in names if name not in same]
    if other:
        own: list[list[str | Cell]] = [
            [shown.label, *(each.get(name, "") for name in other)]
            for shown, each in zip(runs, facts, strict=True)
        ]
        parts.append(
            _maybe_folded("Origin of each run", Table(["run", *other], own), "Of each run")
        )
    return join(parts)


def _facts(shown: Shown) -> dict[str, str]:
    run = shown.run
    return {
        "id": run.id,
        "started at": run.started_at,
        "seed": str(run.experiment.seed),
        "status": run.status,
        "seconds measured": numbers.significant(shown.metrics.seconds_measured),
        "warm-up, s": f"{run.experiment.warm_up_s:g}",
        **{f"version of {name}": value for name, value in run.versions.items()},
        **{name.replace("_", " "): _fact(value) for name, value in run.machine.items()},
    }


def _fact(value: str | int | float) -> str:
    return (
        value
        if isinstance(value, str)
        else f"{value:g}"
        if isinstance(value, float)
        else f"{value:,}"
    )
