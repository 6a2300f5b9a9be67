"""Whether the figures of a run may be used: what was read against what the brokers hold."""

from __future__ import annotations

from dataclasses import replace

from penstock.domain.metrics import RunMetrics
from penstock.domain.run import Run

# A topic that has one of these may lose records before they are read.
_THINNING = ("cleanup.", "retention.", "delete.retention")


def checked(run: Run, metrics: RunMetrics) -> Run:
    """The run, marked invalid if its readers did not read what the brokers hold."""
    if run.status == "interrupted":
        return _invalid(
            run,
            "the run was interrupted: messages that its consumers had not read yet count as lost",
        )
    records = metrics.counts.records
    difference = uncounted(run, records, is_exact=True)
    return run if difference is None else _invalid(run, difference)


def uncounted(run: Run, records: int, *, is_exact: bool) -> str | None:
    """Why the records that were read cannot be all that the brokers hold; None if they can.

    Offsets count records and the control markers of transactions; readers are given records only.
    So the sum of the end offsets must be the records read plus the markers. Unless `is_exact`,
    records that were given to a reader again may be among them.
    """
    is_thinned = any(name.startswith(_THINNING) for name in run.spec.topic.config)
    if run.unreadable or run.unread or is_thinned:
        return None
    markers = sum(producer.control_markers for producer in run.producers)
    expected = sum(run.end_offsets.values()) - markers
    if records == expected or (records > expected and not is_exact):
        return None
    beside = f" beside {markers} control markers" if markers else ""
    return f"{records} records were read, but the brokers have {expected}{beside}"


def _invalid(run: Run, reason: str) -> Run:
    """With the reason added, once however often the run is analysed."""
    return replace(run, invalid=tuple(dict.fromkeys((*run.invalid, reason))))
