"""Whether the figures of a run may be used: what was read against what the brokers hold."""

from __future__ import annotations

from dataclasses import replace

from penstock.domain.client import property_text
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import Run, RunSpec

# Kafka's names of a topic's property, and of the brokers' that it overrides, each with the factor to
# its unit here (s, bytes). The first one that is set counts.
_POLICY = ("cleanup.policy", "log.cleanup.policy")
_RETENTION_S = {
    "retention.ms": 1e-3,
    "log.retention.ms": 1e-3,
    "log.retention.minutes": 60.0,
    "log.retention.hours": 3600.0,
}
_RETENTION_BYTES = {"retention.bytes": 1.0, "log.retention.bytes": 1.0}
# Retention of more than so many times what a run needs deletes nothing of it. What it needs is known
# roughly: brokers may store records with another compression than producers sent them with, and
# producers count their bytes until shortly before their end.
_AMPLE = 2.0


def checked(run: Run, metrics: RunMetrics) -> Run:
    """The run, marked invalid if its readers did not read what the brokers hold, or with a warning
    if that could not be checked."""
    if run.status == "interrupted":
        return _invalid(
            run,
            "the run was interrupted: messages that its consumers had not read yet count as lost",
        )
    if (why := unchecked(run)) is not None:
        return run if why in run.warnings else replace(run, warnings=(*run.warnings, why))
    records = metrics.counts.records
    difference = uncounted(run, records, is_exact=True)
    return run if difference is None else _invalid(run, difference)


def uncounted(run: Run, records: int, *, is_exact: bool) -> str | None:
    """Why the records that were read cannot be all that the brokers hold; None if they can.

    Offsets count records and the control markers of transactions; readers are given records only.
    So the sum of the end offsets must be the records read plus the markers. Unless `is_exact`,
    records that were given to a reader again may be among them.
    """
    if run.unreadable or run.unread or unchecked(run) is not None:
        return None
    markers = sum(producer.control_markers for producer in run.producers)
    expected = sum(run.end_offsets.values()) - markers
    if records == expected or (records > expected and not is_exact):
        return None
    beside = f" beside {markers} control markers" if markers else ""
    return f"{records} records were read, but the brokers have {expected}{beside}"


def unchecked(run: Run) -> str | None:
    """A warning that the records read cannot be compared with the end offsets, because the brokers
    may have removed some before they were read; None if they cannot have."""
    why = _compacts(run.spec) or _expires(run) or _overflows(run)
    return why and f"the records read were not compared with those that the brokers hold: {why}"


def _compacts(spec: RunSpec) -> str | None:
    properties = _properties(spec)
    name = next((name for name in _POLICY if name in properties), None)
    if name is None or "compact" not in properties[name]:
        return None
    return f"{name} is {properties[name]}, and compaction removes records"


def _expires(run: Run) -> str | None:
    spec = run.spec
    retention_s = _retention(spec, _RETENTION_S)
    # The load may have begun as long before the first anchor as a warm-up may take.
    between = [anchor.monotonic_ns for anchor in run.anchors] or [0]
    load_s = max(spec.workload.duration_s, (between[-1] - between[0]) / 1e9)
    run_s = spec.warm_up_s + spec.cluster_warm_up.limit_s + load_s
    if retention_s is None or retention_s > _AMPLE * run_s:
        return None
    return (
        f"they are deleted after {retention_s:g} s, and the run may have taken {run_s:.0f} s; a "
        f"retention of more than {_AMPLE * run_s:.0f} s would be enough"
    )


def _overflows(run: Run) -> str | None:
    retention_bytes = _retention(run.spec, _RETENTION_BYTES)
    if retention_bytes is None:
        return None
    counters = [producer.counters for producer in run.producers]
    # All of them may have gone to one partition.
    sizes = [max(c.sent_bytes, c.message_bytes) for c in counters if c is not None]
    ample_bytes = _AMPLE * sum(sizes)
    if len(sizes) == len(counters) and retention_bytes > ample_bytes:
        return None
    known = f"{sum(sizes):,} bytes" if len(sizes) == len(counters) else "an unknown number of bytes"
    return f"a partition keeps {retention_bytes:,.0f} bytes, and {known} were sent"


def _retention(spec: RunSpec, names: dict[str, float]) -> float | None:
    """What is kept, in the unit of the factors of `names`; None: all, or Kafka's default, a week."""
    properties = _properties(spec)
    name = next((name for name in names if name in properties), None)
    if name is None:
        return None
    try:
        kept = float(properties[name]) * names[name]
    except ValueError:  # Kafka refuses it, so the topic existed already, without it
        return None
    return kept if kept >= 0 else None


def _properties(spec: RunSpec) -> dict[str, str]:
    """What brokers and topic are configured with; the names of the two differ."""
    brokers = {name: property_text(value) for name, value in spec.cluster.properties.items()}
    return brokers | spec.topic.config_text()


def _invalid(run: Run, reason: str) -> Run:
    """With the reason added, once however often the run is analysed."""
    return replace(run, invalid=tuple(dict.fromkeys((*run.invalid, reason))))
