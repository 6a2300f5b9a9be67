"""How long each message took, and the parts of it, in nanoseconds. Not yet counted.

    latency          intended → received
    acknowledgement  intended → reported, of acknowledged messages
    waiting          intended → sent       ┐ of messages that arrived: they add up to the latency.
    produce          sent → appended       │ Without append times only the first is known; where
    commit           appended → visible    │ nobody watched, the last two are one, commit+fetch
    fetch            visible → received    ┘
    answer           sent → reported, whatever the outcome
    persisted        intended → appended, for staleness only; where the append time is unknown,
                     intended → visible or received, whichever was first

"Appended", "visible" and "received" are the first copy's. The broker's append time is its wall
clock in whole milliseconds: half of one is added, it is put on our clock by the run's anchors, and
moved to where it must lie, between sent and visible, if it is off by no more than a millisecond.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.analysis.join import NONE
from penstock.domain.metrics import PARTS

LATENCY, ACKNOWLEDGEMENT = "latency", "acknowledgement"
# Name of a distribution → the column that holds its values.
TIMES = {name: f"{name.replace('+', '_')}_ns" for name in (LATENCY, ACKNOWLEDGEMENT, *PARTS)}

# Half a millisecond for the truncation, and as much for the anchors and the brokers' timer.
_TOLERANCE_NS = 1_000_000


def with_times(messages: DataFrame) -> DataFrame:
    """Adds a column for each of `TIMES`, NONE where there is no such time, and two marks.

    Expects the columns of `join.messages` and those of the runs. `is_misplaced`: the append time
    contradicts ours; `is_backwards`: a time lies before what must have come first.
    """
    # The watcher may see a message a little later than the consumer does.
    visible = "greatest(if(visible_ns < 0, received_ns, least(visible_ns, received_ns)), sent_ns)"
    wall_ns = "appended_ms * 1000000L + 500000L"
    appended = f"anchor_ns + bigint(({wall_ns} - anchor_wall_ns) * clock_rate)"
    timed = messages.selectExpr(
        "*",
        f"{visible} as limit_ns",
        f"if(appended_ms < 0 or anchor_ns < 0, {NONE}L, {appended}) as broker_ns",
    )
    orders = (("received", "sent"), ("sent", "intended"), ("reported", "sent"))
    backwards = " or ".join(_is_before(f"{b}_ns", f"{a}_ns") for b, a in orders)
    early, late = f"sent_ns - {_TOLERANCE_NS}L", f"limit_ns + {_TOLERANCE_NS}L"
    placed = timed.selectExpr(
        "*",
        f"broker_ns >= 0 and sent_ns >= 0 and (broker_ns < {early} or broker_ns > {late}) "
        "as is_misplaced",
        f"{backwards} as is_backwards",
        "greatest(least(broker_ns, limit_ns), sent_ns) as appended_ns",
    )
    arrived = "received_ns >= 0 and sent_ns >= 0 and not is_backwards"
    split = f"{arrived} and broker_ns >= 0 and not is_misplaced"
    return placed.selectExpr(
        "*",
        _span("intended_ns", "received_ns", "latency_ns"),
        _span("intended_ns", "reported_ns", "acknowledgement_ns", "outcome = 0"),
        _span("intended_ns", "sent_ns", "waiting_ns", arrived),
        _span("sent_ns", "appended_ns", "produce_ns", split),
        _span("appended_ns", "limit_ns", "commit_ns", f"{split} and visible_ns >= 0"),
        _span("limit_ns", "received_ns", "fetch_ns", f"{split} and visible_ns >= 0"),
        _span("appended_ns", "limit_ns", "commit_fetch_ns", f"{split} and visible_ns < 0"),
        _span("sent_ns", "reported_ns", "answer_ns"),
        _span("intended_ns", f"if({split}, appended_ns, limit_ns)", "persisted_ns", arrived),
    )


def _span(earlier: str, later: str, name: str, condition: str = "true") -> str:
    """How much later; none if it is earlier by more than the tolerance."""
    is_there = f"{condition} and {earlier} >= 0 and {later} >= {earlier} - {_TOLERANCE_NS}L"
    return f"if({is_there} and {later} >= 0, greatest({later} - {earlier}, 0L), {NONE}L) as {name}"


def _is_before(later: str, earlier: str) -> str:
    return f"({later} >= 0 and {earlier} >= 0 and {later} < {earlier} - {_TOLERANCE_NS}L)"
