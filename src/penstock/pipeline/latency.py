"""How long each message took, and the parts of it, in nanoseconds. Not yet counted.

    latency          intended → received
    acknowledgement  intended → told, of acknowledged messages
    waiting          intended → sent       ┐ of messages that arrived: they add up to the latency.
    produce          sent → appended       │ Without append times only the first is known; where
    commit           appended → visible    │ nobody watched, the last two are one, commit+fetch
    fetch            visible → received    ┘
    answer           sent → told, whatever the client said

"Appended", "visible" and "received" are the first copy's. The broker's append time is its wall
clock in whole milliseconds: half of one is added, it is put on our clock by the run's anchors, and
moved to where it must lie, between sent and visible, if it is off by no more than a millisecond.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LATENCY, ACKNOWLEDGEMENT, COMMIT_FETCH = "latency", "acknowledgement", "commit+fetch"
PARTS = ("waiting", "produce", "commit", "fetch", COMMIT_FETCH, "answer")
# Name of a distribution → the column that holds its values.
TIMES = {name: f"{name.replace('+', '_')}_ns" for name in (LATENCY, ACKNOWLEDGEMENT, *PARTS)}

# Half a millisecond for the truncation, and as much for the anchors and the brokers' timer.
_TOLERANCE_NS = 1_000_000
_MS = 1_000_000


def with_times(messages: DataFrame) -> DataFrame:
    """Adds a column for each of `TIMES`, empty where there is no such time, and two marks.

    Expects the columns of `states.messages` and those of `WallClock`. `is_misplaced`: the append
    time contradicts ours; `is_backwards`: a time lies before what must have come first.
    """
    intended, sent, told_ns = F.col("intended_ns"), F.col("sent_ns"), F.col("told_ns")
    received, visible = F.col("received_ns"), F.col("visible_ns")
    is_backwards = _any(
        received < sent - _TOLERANCE_NS,
        sent < intended - _TOLERANCE_NS,
        told_ns < sent - _TOLERANCE_NS,
    )
    # A reader that was told a little later than the consumer saw it a little later.
    limit = F.greatest(F.least(visible, received), sent)
    appended = _monotonic_ns(F.col("appended_ms"))
    timed = messages.withColumns({"limit_ns": limit, "appended_ns": appended})
    limit, appended = F.col("limit_ns"), F.col("appended_ns")
    is_misplaced = _any(appended < sent - _TOLERANCE_NS, appended > limit + _TOLERANCE_NS)
    placed = timed.withColumns(
        {
            "is_misplaced": is_misplaced,
            "is_backwards": is_backwards,
            "appended_ns": F.when(~is_misplaced, F.greatest(F.least(appended, limit), sent)),
        }
    )
    is_watched = visible.isNotNull()
    is_sound = received.isNotNull() & ~F.col("is_backwards")
    is_split = appended.isNotNull() & is_sound
    return placed.withColumns(
        {
            "latency_ns": _since(intended, received),
            "acknowledgement_ns": F.when(F.col("told") == 0, _since(intended, told_ns)),
            "waiting_ns": F.when(is_sound, _since(intended, sent)),
            "produce_ns": F.when(is_split, appended - sent),
            "commit_ns": F.when(is_split & is_watched, limit - appended),
            "fetch_ns": F.when(is_split & is_watched, _since(limit, received)),
            "commit_fetch_ns": F.when(is_split & ~is_watched, limit - appended),
            "answer_ns": _since(sent, told_ns),
        }
    ).drop("limit_ns", "appended_ns")


def _monotonic_ns(wall_ms: Column) -> Column:
    since_anchor = wall_ms * _MS + F.lit(_MS // 2) - F.col("anchor_wall_ns")
    return F.col("anchor_ns") + (since_anchor * F.col("clock_rate")).cast("long")


def _since(earlier: Column, later: Column) -> Column:
    """How much later; nothing if it is earlier by more than the tolerance."""
    took = later - earlier
    return F.when(took >= -_TOLERANCE_NS, F.greatest(took, F.lit(0)))


def _any(*conditions: Column) -> Column:
    """Whether one of them holds; what is unknown does not."""
    return F.coalesce(*(F.when(condition, True) for condition in conditions), F.lit(False))
