"""The summary's counts of one run → `RunMetrics`. Plain numpy: no Spark, no rows of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.analysis import summary
from penstock.analysis.buckets import rounded_down
from penstock.analysis.closed_loop import corrected
from penstock.analysis.latency import ACKNOWLEDGEMENT, LATENCY
from penstock.analysis.outcome_bits import Outcomes
from penstock.analysis.steady import steadiness
from penstock.analysis.summary_arrays import Entries, Ints, RunSummary, Truths
from penstock.analysis.timeline import Timeline
from penstock.analysis.traces import Requests
from penstock.domain.kpi import Kpi, kpi_of
from penstock.domain.message import Acknowledgement
from penstock.domain.metrics import (
    PARTS,
    PERCENTS,
    Distribution,
    Estimate,
    MessageCounts,
    RunMetrics,
    RunSecond,
)
from penstock.domain.objective import Objective
from penstock.domain.run import RunSpec
from penstock.domain.steadiness import Disturbance
from penstock.stats import batch_means
from penstock.stats.histogram import Histogram, bucket_index, rank, summed

_NS_TO_MS = 1e-6
_MB = 1e6
# A time that cannot be is shown as a gap of so many seconds at most.
_LONGEST_GAP_S = 7 * 86_400

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assembly:
    """One run on its way to its metrics. `limits` are in ms, rising, as in the outcomes."""

    run: str
    timeline: Timeline
    run_summary: RunSummary
    limits_ms: tuple[float, ...]
    spec: RunSpec
    requests: Requests | None
    disturbance: Disturbance | None = None
    records: int | None = None  # if a record may hold several messages; else every copy is one

    def metrics(self, warnings: tuple[str, ...]) -> RunMetrics:
        named = {name: self._distribution(name) for name in (LATENCY, ACKNOWLEDGEMENT, *PARTS)}
        accepted, arrived = self._within(summary.ACCEPTED), self._within(summary.ARRIVED)
        return RunMetrics(
            run=self.run,
            seconds_measured=self.timeline.seconds,
            counts=self.counts,
            lost_share=self._share(self._sent.is_lost) or _UNKNOWN_SHARE,
            duplicated_share=self._share(self._sent.is_duplicated) or _UNKNOWN_SHARE,
            latency=named[LATENCY],
            acknowledgement=named[ACKNOWLEDGEMENT],
            corrected=corrected(self.spec.workload, self._whole(ACKNOWLEDGEMENT)),
            parts={name: part for name in PARTS if (part := named[name]) is not None},
            violation_share=dict(self._violations()),
            throughput_per_s=self._rate(accepted.at, accepted.entries),
            throughput_mb_per_s=self._rate(accepted.at, accepted.total / _MB),
            goodput_mb_per_s=self._rate(arrived.at, arrived.total / _MB),
            timely_mb_per_s=self._timely(arrived),
            kpi=self._kpi(accepted),
            overhead_share=self._overhead(),
            steadiness=steadiness(self.run_summary, self.timeline, self.disturbance),
            seconds=tuple(self._seconds()),
            warnings=(*warnings, *self._doubts()),
        )

    # --- outcomes ----------------------------------------------------------------------------

    @cached_property
    def _outcomes(self) -> Entries:
        """Of all messages: warm-up, measured, and what was due after the end."""
        return self.run_summary.entries(summary.OUTCOME)

    @cached_property
    def _sent_rows(self) -> Entries:
        """Of the messages sent in the measured time."""
        rows = self._outcomes
        return rows.where(self._is_measured(rows) & Outcomes(rows.bucket).is_sent)

    @cached_property
    def _sent(self) -> Outcomes:
        return Outcomes(self._sent_rows.bucket)

    def _is_measured(self, rows: Entries) -> Truths:
        return np.asarray((rows.at >= 0) & (rows.at < self.timeline.slices))

    @property
    def rows(self) -> int:
        """Rows of `sent` that were counted, with any outcome."""
        return int(self._outcomes.entries.sum())

    @cached_property
    def counts(self) -> MessageCounts:
        rows, sent, n = self._outcomes, self._sent, self._sent_rows.entries
        of_all = Outcomes(rows.bucket)
        copies = self.run_summary.entries(summary.COPIES)
        foreign = self.run_summary.entries(summary.FOREIGN).sum
        in_topic = int(rows.entries[of_all.is_delivered].sum()) + copies.sum + foreign

        def of(mask: Truths) -> int:
            return int(n[mask].sum())

        reported = {word: sent.has(word) for word in Acknowledgement}
        return MessageCounts(
            sent=int(n.sum()),
            unsent=int(rows.entries[self._is_measured(rows) & ~of_all.is_sent].sum()),
            warm_up=int(rows.entries[(rows.at < 0) & of_all.is_sent].sum()),
            acknowledged=of(reported[Acknowledgement.ACKNOWLEDGED]),
            failed=of(reported[Acknowledgement.FAILED]),
            unknown=of(reported[Acknowledgement.UNKNOWN]),
            delivered=of(sent.is_delivered),
            lost=of(sent.is_lost),
            duplicated=of(sent.is_duplicated),
            copies=of(sent.is_delivered) + copies.where(self._is_measured(copies)).sum,
            acknowledged_yet_lost=of(reported[Acknowledgement.ACKNOWLEDGED] & sent.is_lost),
            failed_yet_delivered=of(reported[Acknowledgement.FAILED] & ~sent.is_lost),
            redelivered=self.run_summary.entries(summary.AGAIN).sum,
            records=in_topic if self.records is None else self.records,
            foreign=foreign,
            stale=of(sent.is_stale),
            # With `duplicated` (case 5) these make up `sent`. A message in the topic that no
            # request is known to have carried has unknown tries.
            first_try=of(sent.is_delivered & sent.is_sent_once),
            lost_first_try=of(sent.is_lost & sent.is_sent_once),
            lost_after_retries=of(sent.is_lost & sent.is_retried),
            after_retries=of(sent.is_delivered & sent.is_retried),
            never_left=of(sent.never_left),
            tries_unknown=of(
                ~(sent.is_duplicated | sent.is_sent_once | sent.is_retried | sent.never_left)
            ),
        )

    # --- shares and rates --------------------------------------------------------------------

    def _by_batch(self, at: Ints, weights: npt.NDArray[Any]) -> Floats:
        """Sums per slice of the measured time; of a long run, per group of slices."""
        sums = np.bincount(at, weights, minlength=self.timeline.slices)
        return np.add.reduceat(sums, np.arange(0, len(sums), self.timeline.slices_per_batch))

    @cached_property
    def _seconds_by_batch(self) -> Floats:
        line = self.timeline
        first = np.arange(0, line.slices, line.slices_per_batch) * line.slice_ns
        end = np.append(first[1:], line.to_ns - line.from_ns)
        return np.asarray((end - first) * 1e-9)

    def _within(self, what: int) -> Entries:
        """What happened in the measured time, whenever it was due: a backlog that is worked off
        after the end is not throughput."""
        rows = self.run_summary.entries(what)
        return rows.where(self._is_measured(rows))

    def _rate(self, at: Ints, weights: npt.NDArray[Any]) -> Estimate | None:
        """Per second of the measured time."""
        if not self.timeline.slices:
            return None
        sums = self._by_batch(at, weights)
        estimate = batch_means.of_ratio(sums.tolist(), self._seconds_by_batch.tolist())
        return replace(estimate, low=max(0.0, estimate.low)) if estimate.low else estimate

    def _share(self, hit: Truths, among: Truths | None = None) -> Estimate | None:
        """Of messages sent, or of those `among` them; None if there are none."""
        rows = self._sent_rows
        of = np.ones(len(rows.at), dtype=np.bool_) if among is None else among
        if not rows.entries[of].sum():
            return None
        hits = self._by_batch(rows.at[of & hit], rows.entries[of & hit])
        counts = self._by_batch(rows.at[of], rows.entries[of])
        together = self.requests.messages_each if self.requests else None
        return batch_means.of_share(hits.tolist(), counts.tolist(), together)

    def _violations(self) -> Iterator[tuple[str, Estimate]]:
        for place, limit_ms in enumerate(self.limits_ms):
            share = self._share(self._sent.exceeds(place), among=~self._sent.is_lost)
            if share is not None:
                yield f"{limit_ms:g}", share

    @property
    def _objective(self) -> Objective:
        return self.spec.objective or Objective()

    def _timely(self, arrived: Entries) -> Estimate | None:
        in_time = self._in_time(arrived)
        return self._rate(in_time.at, in_time.total / _MB)

    def _in_time(self, arrived: Entries) -> Entries:
        """The bucket of an arrival is the number of limits that its latency exceeded."""
        limit_ms = self._objective.latency_ms
        if limit_ms is None:
            return arrived
        return arrived.where(arrived.bucket <= self.limits_ms.index(limit_ms))

    def _kpi(self, accepted: Entries) -> Kpi | None:
        seconds, sent = self.timeline.seconds, self.counts.sent
        if not sent or not seconds:
            return None
        used_bytes = self.requests.size_bytes if self.requests else accepted.sum
        return kpi_of(
            self.spec,
            used_mb_per_s=used_bytes / _MB / seconds,
            acknowledged_per_s=int(accepted.entries.sum()) / seconds,
            lost_share=self.counts.lost / sent,
            duplicated_share=self.counts.duplicated / sent,
        )

    def _overhead(self) -> Estimate | None:
        """Of the bytes of requests; all tries of a message carry it."""
        if self.requests is None or not self.requests.size_bytes or not self.counts.sent:
            return None
        mean_bytes = self._sent_rows.sum / self.counts.sent
        return Estimate(value=1 - self.requests.messages * mean_bytes / self.requests.size_bytes)

    # --- times -------------------------------------------------------------------------------

    def _distribution(self, name: str) -> Distribution | None:
        whole = self._whole(name)
        if whole is None:
            return None
        sliced = self.run_summary.entries(summary.SLICED[name])
        if name == LATENCY:
            sliced = sliced.where(self._is_measured(sliced))
            sliced = replace(sliced, at=sliced.at // self.timeline.slices_per_batch)
        first = np.flatnonzero(np.diff(sliced.at, prepend=-1))
        mean = batch_means.of_ratio(
            np.add.reduceat(sliced.total.astype(np.float64), first).tolist(),
            np.add.reduceat(sliced.entries.astype(np.float64), first).tolist(),
        )
        return Distribution(
            count=whole.count,
            mean_ms=batch_means.scaled(batch_means.over_runs(mean, whole.deviation_ns), _NS_TO_MS),
            deviation_ms=whole.deviation_ns * _NS_TO_MS,
            percentiles_ms=_percentiles(whole, _histograms(sliced, first)),
            min_ms=whole.min_ns * _NS_TO_MS,
            max_ms=whole.max_ns * _NS_TO_MS,
            buckets=whole.to_buckets(),
        )

    def _whole(self, name: str) -> Histogram | None:
        """Of three digits; a part of the latency has two."""
        if name not in summary.WHOLE:
            rows = self.run_summary.entries(summary.SLICED[name])
            return _histogram(rows) if len(rows.at) else None
        rows = self.run_summary.entries(summary.WHOLE[name])
        if not len(rows.at):
            return None
        return Histogram(rows.bucket, rows.entries, int(rows.least.min()), int(rows.most.max()))

    # --- seconds -----------------------------------------------------------------------------

    def _seconds(self) -> Iterator[RunSecond]:
        rows = self._outcomes.where(self._outcomes.at < self.timeline.slices)
        outcomes, per_second = Outcomes(rows.bucket), self.timeline.slices_per_second
        second = rows.at // per_second
        arrived = self.run_summary.entries(summary.ARRIVED)
        arrived = replace(arrived, at=arrived.at // per_second)
        latency = self.run_summary.entries(summary.SLICED[LATENCY])
        latency = latency.where(latency.at < self.timeline.slices)
        of = {
            "due": np.ones(len(second), dtype=np.bool_),
            "acknowledged": outcomes.is_sent & outcomes.has(Acknowledgement.ACKNOWLEDGED),
            "failed": outcomes.is_sent & outcomes.has(Acknowledgement.FAILED),
            "lost": outcomes.is_sent & outcomes.is_lost,
            "duplicated": outcomes.is_sent & outcomes.is_duplicated,
            "stale": outcomes.is_sent & outcomes.is_stale,
        }
        late = {
            f"{limit_ms:g}": outcomes.is_sent & ~outcomes.is_lost & outcomes.exceeds(place)
            for place, limit_ms in enumerate(self.limits_ms)
        }
        sums = {name: _sums(second[mask], rows.entries[mask]) for name, mask in of.items()}
        sums["received"] = _sums(arrived.at, arrived.entries)
        sums["received_bytes"] = _sums(arrived.at, arrived.total)
        if self._objective.latency_ms is not None:
            in_time = self._in_time(arrived)
            sums["timely_bytes"] = _sums(in_time.at, in_time.total)
        late_sums = {zeta: _sums(second[mask], rows.entries[mask]) for zeta, mask in late.items()}
        times = _times_by_second(replace(latency, at=latency.at // per_second))
        present = sorted({*sums["due"], *sums["received"]})

        def at(by_name: Mapping[str, Mapping[int, int]], second: int) -> dict[str, Any]:
            return {name: by_second.get(second, 0) for name, by_second in by_name.items()}

        for at_s in _without_gaps(present):
            late_then = at(late_sums, at_s)
            yield RunSecond(at_s=at_s, late=late_then, **at(sums, at_s), **times.get(at_s, {}))

    # --- what is doubtful --------------------------------------------------------------------

    def _doubts(self) -> Iterator[str]:
        if misplaced := self.run_summary.entries(summary.MISPLACED).sum:
            yield (
                f"the brokers' append times of {misplaced} messages contradict ours by more than "
                "1 ms: the latency of these is not split into its parts"
            )
        if backwards := self.run_summary.entries(summary.BACKWARDS).sum:
            yield (
                f"{backwards} messages have a time before what must have come first, so not all "
                "processes of the run had one clock: latencies cannot be trusted"
            )


# Nothing was sent, so anything is possible.
_UNKNOWN_SHARE = Estimate(value=0.0, low=0.0, high=1.0)


def _histograms(rows: Entries, first: npt.NDArray[np.intp]) -> list[Histogram]:
    """One for each stretch of time. A bucket of two digits counts as the largest value in it."""
    ends = np.append(first[1:], len(rows.at))
    return [_histogram(rows.where(slice(int(a), int(b)))) for a, b in zip(first, ends, strict=True)]


def _histogram(rows: Entries) -> Histogram:
    index, counts = summed(bucket_index(rows.most), rows.entries)
    return Histogram(index, counts, int(rows.least.min()), int(rows.most.max()))


def _percentiles(whole: Histogram, slices: list[Histogram]) -> dict[str, Estimate]:
    """The figure with its three digits; its interval with the two digits of the slices."""
    exact, deviation_ns = whole.percentiles(PERCENTS), whole.deviation_ns
    percentiles = {}
    rough_ones = batch_means.of_quantiles(slices, [percent / 100 for percent in PERCENTS])
    for percent, value, rough in zip(PERCENTS, exact, rough_ones, strict=True):
        low, high = rough.low, rough.high
        if low is not None and high is not None:
            low, high = min(rounded_down(int(low), 2), value), max(high, value)
        elif len(rough.batches) > 1 and _lies_in_last_bucket(whole, percent, value):
            low, high = rounded_down(value, 2), whole.max_ns
        estimate = replace(rough, value=float(value), low=low, high=high)
        percentiles[f"{percent:g}"] = batch_means.scaled(
            batch_means.over_runs(estimate, deviation_ns), _NS_TO_MS
        )
    return percentiles


def _lies_in_last_bucket(whole: Histogram, percent: float, value_ns: int) -> bool:
    """Whether all that is above it lies in one bucket of two digits with it: that is its interval.

    Only if there is enough above it to say that the largest value is not by chance so near.
    """
    above = whole.count * (1 - percent / 100)
    return above >= 100 and rounded_down(value_ns, 2) == rounded_down(whole.max_ns, 2)


def _sums(at: Ints, weights: Ints) -> dict[int, int]:
    keys, sums = summed(at, weights)
    return dict(zip(keys.tolist(), sums.tolist(), strict=True))


def _times_by_second(rows: Entries) -> Mapping[int, dict[str, Any]]:
    """Second → median, 99th percentile (of two digits) and the exact maximum, in ms."""
    times = {}
    order = np.lexsort((rows.most, rows.at))
    at, most, entries = rows.at[order], rows.most[order], rows.entries[order]
    for second in np.unique(at).tolist():
        first, end = np.searchsorted(at, (second, second + 1))
        ranks = np.cumsum(entries[first:end])
        places = [rank(percent, int(ranks[-1])) for percent in (50.0, 99.0)]
        p50, p99 = most[first:end][np.searchsorted(ranks, places)].tolist()
        times[second] = {
            "p50_ms": p50 * _NS_TO_MS,
            "p99_ms": p99 * _NS_TO_MS,
            "max_ms": int(most[end - 1]) * _NS_TO_MS,
        }
    return times


def _without_gaps(present: list[int]) -> list[int]:
    """Seconds without events are included: they show when a run froze."""
    if not present or present[-1] - present[0] > _LONGEST_GAP_S:
        return present
    return list(range(present[0], present[-1] + 1))
