"""The origin of the runs of a page: settings, how the load was generated, versions, machine."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import specs
from penstock.report import formatting, settings_diff, tables
from penstock.report.conditions import conditions
from penstock.report.document import Section
from penstock.report.markup import Markup, folded, folded_if, join, table, tag
from penstock.report.reported_run import ReportedRun, Side
from penstock.report.tables import Table


def settings(sides: Sequence[Side]) -> Section:
    different, common = settings_diff.split([side.runs[0].run.spec for side in sides])
    content: list[Markup] = []
    if len(sides) > 1 and different:
        by_side = [
            ["absent" if value is None else value for value in values]
            for values in zip(*different.values(), strict=True)
        ]
        labels = [side.label for side in sides]
        by_setting = tables.by_run("setting", list(different), labels, by_side)
        content.append(table(by_setting, "Settings that differ"))
    elif len(sides) > 1:
        content.append(tag("p", "The settings do not differ."))
    title = "Settings in common" if len(sides) > 1 else "All settings, defaults included"
    shared = table(Table(["setting", "value"], list(common.items())), title)
    content.append(folded(f"{title} ({len(common)})", shared))
    for side in sides:
        written = specs.dump_yaml(side.runs[0].run.spec)
        name = "The scenario as YAML" if len(sides) == 1 else f"The scenario as YAML: {side.label}"
        content.append(folded(name, tag("pre", tag("code", written))))
    return Section("settings", "Settings", tuple(content))


def evidence(runs: Sequence[ReportedRun]) -> Section:
    """How warm the cluster was, how well the load was generated, on what, and with what."""
    content = []
    if (measured_under := conditions(runs)) is not None:
        caption = "State of the cluster at the start of the load, steadiness, and cost of observing"
        # Runs are rows if there are many of them.
        is_long = len(runs) > tables.MOST_COLUMNS
        title = f"Conditions of all {len(runs)} runs"
        content.append(folded_if(is_long, title, table(measured_under, caption)))
    content += [_generators(runs), _provenance(runs)]
    return Section("evidence", "How it was measured", tuple(content))


def _generators(runs: Sequence[ReportedRun]) -> Markup:
    producers = [
        [
            reported.label,
            f"producer {p.producer}",
            formatting.count(p.scheduled),
            formatting.count(p.sent),
            *map(formatting.significant, (p.lag_p50_us, p.lag_p99_us, p.lag_max_us)),
            formatting.significant(p.queue_full_s),
            formatting.count(p.retries),
            formatting.significant(p.cpu_s),
        ]
        for reported in runs
        for p in reported.run.producers
    ]
    readers = [
        [
            reported.label,
            f"consumer {c.consumer}",
            formatting.count(c.received),
            formatting.count(c.rebalances),
            formatting.significant(c.cpu_s),
            "; ".join(c.errors) or "none",
        ]
        for reported in runs
        for c in reported.run.consumers
    ]
    parts: list[Markup] = []
    if producers:
        columns = [
            "run", "process", "scheduled", "sent", "lag p50, µs", "lag p99, µs", "lag max, µs",
            "queue full, s", "requests sent again", "CPU, s",
        ]  # fmt: skip
        caption = "How well the generator kept its schedule; lag is its own delay"
        parts.append(_maybe_folded("Producers", Table(columns, producers), caption))
    if readers:
        columns = ["run", "process", "received", "rebalances", "CPU, s", "errors"]
        parts.append(_maybe_folded("Consumers", Table(columns, readers), "Consumers"))
    return join(parts)


def _maybe_folded(title: str, content: Table, caption: str) -> Markup:
    rows = len(content.rows)
    return folded_if(rows > 8, f"{title} ({rows})", table(content, caption))


def _provenance(runs: Sequence[ReportedRun]) -> Markup:
    """Seed, versions and machine: one column if all runs agree, else one per run."""
    facts = [_facts(reported) for reported in runs]
    names = list(dict.fromkeys(name for run_facts in facts for name in run_facts))
    same = [n for n in names if len({run_facts.get(n) for run_facts in facts}) == 1]
    rows = [[name, facts[0].get(name, "")] for name in same]
    parts = [table(Table(["of all runs" if len(runs) > 1 else "this run", ""], rows), "Origin")]
    other = [name for name in names if name not in same]
    if other:
        own = [
            [reported.label, *(run_facts.get(name, "") for name in other)]
            for reported, run_facts in zip(runs, facts, strict=True)
        ]
        drawn = Table(["run", *other], own)
        parts.append(_maybe_folded("Origin of each run", drawn, "Of each run"))
    return join(parts)


def _facts(reported: ReportedRun) -> dict[str, str]:
    run = reported.run
    return {
        "id": run.id,
        "started at": run.started_at,
        "seed": str(run.spec.seed),
        "status": run.status,
        "seconds measured": formatting.significant(reported.metrics.seconds_measured),
        "warm-up, s": f"{run.spec.warm_up_s:g}",
        **{f"version of {name}": value for name, value in run.versions.items()},
        **{name.replace("_", " "): _fact(value) for name, value in run.machine.items()},
    }


def _fact(value: str | int | float) -> str:
    match value:
        case str():
            return value
        case float():
            return f"{value:g}"
    return f"{value:,}"
