"""What every command that has runs to show does with them: analyse, judge, write down, show."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.cli import output
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.findings import findings
from penstock.domain.metrics import Distribution, RunMetrics
from penstock.domain.run import Run
from penstock.domain.shapes import Finding
from penstock.domain.verdict import judge
from penstock.measure import journal
from penstock.measure.campaign import Campaign
from penstock.measure.hdr_log import HdrLog, Interval, write
from penstock.measure.histogram import Histogram
from penstock.measure.run_directory import CELLS, HISTOGRAMS, RunDirectory
from penstock.progress import Progress
from penstock.report import outcome, tables
from penstock.report.disagreement import disagreements
from penstock.report.drift import Drift, drifts
from penstock.report.notices import notices
from penstock.report.shown import Shown, cell_label, counted, sides, with_coldness

VERDICT_EXIT = 10


class BackgroundSpark:
    """A Spark session that starts beside something else, and is warm when it is asked for.

    Not warm on other machines, which could not read a rehearsal's files.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="spark", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        # Here, for it takes a second that no other command should wait for.
        from penstock.pipeline.analysis import warm
        from penstock.pipeline.session import is_on_this_machine, session

        try:
            self._session = session(self._master)
            if is_on_this_machine(self._master):
                warm(self._session)
        except BaseException as error:  # must reach the command, not die with the thread
            self._error = error

    def get(self) -> Any:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._session

    def stop(self) -> None:
        # One that is still starting ends with this process, which it hangs on by a pipe.
        if self._session is not None:
            # After Ctrl-C its Java is gone already: the terminal tells every process.
            with suppress(Exception):
                self._session.stop()


@contextmanager
def spark_session(master: str, say: Progress) -> Iterator[Any]:
    """For a single analysis: to warm it up would take longer."""
    from penstock.pipeline.session import session

    say("starting Spark")
    spark = session(master)
    try:
        yield spark
    finally:
        spark.stop()


def analyse(
    spark: Any, directories: Sequence[RunDirectory], limits_ms: Sequence[float], say: Progress
) -> list[Shown]:
    """Metrics, verdict and histograms of every run that can be analysed, written beside it."""
    from penstock.pipeline.analysis import analyze

    usable = [directory for directory in directories if _is_usable(directory, say)]
    if not usable:
        return []
    messages = "messages" if len(usable) == 1 else f"messages of {len(usable)} runs"
    say(f"counting {messages}")
    found = analyze(spark, [directory.path for directory in usable], limits_ms)
    shown = []
    labels = _labels(usable)
    for directory, label in zip(usable, labels, strict=True):
        metrics = found[directory.path]
        run = _checked(directory.run(), metrics)
        verdict = judge(run.experiment.objective, metrics, run.invalid)
        directory.write_run(run)
        directory.write_metrics(metrics)
        directory.write_verdict(verdict)
        _write_histograms(directory, run, metrics)
        shown.append(Shown(run, metrics, verdict, label, _origin(directory)))
    return shown


def read_back(directories: Sequence[RunDirectory]) -> list[Shown]:
    """The same from what an earlier analysis wrote."""
    return [
        Shown(d.run(), d.metrics(), d.verdict(), label, _origin(d))
        for d, label in zip(directories, _labels(directories), strict=True)
    ]


def findings_of(campaign: Campaign, shown: Sequence[Shown]) -> tuple[Finding, ...]:
    """Whether the shapes that the campaign expects are there, in the runs that are valid."""
    axes = {
        path: tuple(dict.fromkeys(cell.values[path] for cell in campaign.cells))
        for path in campaign.scenario.matrix
    }
    results = [
        (one.run.cell, one.metrics) for one in shown if not one.run.invalid and not one.run.is_again
    ]
    return findings(campaign.scenario.expect, axes, results)


def failures(directories: Sequence[RunDirectory]) -> list[tuple[str, str]]:
    """The cells that failed, each with its reason. Not the first cell run again, which is for drift
    only."""
    runs = [(directory, directory.run()) for directory in directories]
    return [
        (
            with_coldness(cell_label(run) or directory.path.name, [run]),
            run.reason.splitlines()[0] if run.reason else "",
        )
        for directory, run in runs
        if run.status == "failed" and not run.is_again
    ]


def drift_of(shown: Sequence[Shown], directories: Sequence[RunDirectory]) -> tuple[Drift, ...]:
    """What drifted in the campaigns; of runs without metrics, why that cannot be judged."""
    analysed = {one.run.id for one in shown}
    runs = [(_origin(directory), directory.run()) for directory in directories]
    return drifts(shown, [(origin, run) for origin, run in runs if run.id not in analysed])


def show(
    shown: Sequence[Shown],
    findings: Sequence[Finding] = (),
    failed: Sequence[tuple[str, str]] = (),
    drift: Sequence[Drift] = (),
) -> None:
    """What must be known before the figures are used, then the tables, after the outcome."""
    for cell, reason in failed:
        output.warn(f"failed: {cell}: {reason}")
    shown = counted(shown)
    warn_of(shown, drift)
    if len(shown) > tables.MOST_COLUMNS:
        output.table(*tables.overview(shown))
    elif shown:
        output.table(*tables.states(shown))
        output.table(*tables.latencies(shown))
        output.table(*tables.throughputs(shown))
    if any(one.verdict and one.verdict.has_limits for one in shown) and len(shown) <= 10:
        output.table(*(tables.verdicts(shown) if len(shown) > 1 else _verdict(shown[0])))
    if findings:
        output.table(
            ["expected", ""], [[f.sentence, "holds" if f.holds else "NOT THERE"] for f in findings]
        )


_WORDS = {"invalid": "INVALID: ", "cold": "COLD: ", "unsteady": "NOT STEADY: "}


def warn_of(shown: Sequence[Shown], drift: Sequence[Drift]) -> None:
    """The notices of the page, without those that the outcome said already."""
    disagreeing = disagreements(sides(shown))
    alone = counted(shown) if len(counted(shown)) == 1 else []
    said = {
        *(why for one in alone for why in (one.run.coldness, one.unsteadiness)),
        *(each.sentence for each in disagreeing[: outcome.MOST_DISAGREEMENTS]),
        *(each.sentence for each in drift if each.state == "drift"),
    }
    for notice in notices(counted(shown), disagreeing, drift):
        if notice.text in said:
            continue
        about = f"{notice.label}: " if notice.label else ""
        text = f"{about}{_WORDS.get(notice.kind, '')}{notice.text}"
        if notice.kind == "note":
            output.note(text)
        else:
            output.warn(text)


def doubts_as_data(shown: Sequence[Shown], drift: Sequence[Drift]) -> dict[str, object]:
    """For --json: what makes all figures doubtful, whichever command shows them."""
    return {"disagreements": disagreements(sides(shown)), "drift": drift}


def as_data(shown: Sequence[Shown], directories: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Every run for --json. The histograms' buckets and the seconds stay in metrics.json."""
    paths = {directory.run().id: directory.path for directory in directories}
    return [
        {
            "label": one.label,
            "directory": paths.get(one.run.id),
            "cell": one.run.cell,
            "repeat": one.run.repeat,
            "invalid": one.run.invalid,
            "warnings": one.run.warnings,
            "coldness": one.run.coldness,
            "unsteadiness": one.unsteadiness,
            "cluster_state": one.run.cluster_state,
            "observer": one.run.observer,
            "metrics": _without_bulk(one.metrics),
            "verdict": one.verdict,
        }
        for one in counted(shown)
    ]


def _is_usable(directory: RunDirectory, say: Progress) -> bool:
    """Whether there is something to analyse; what a killed run left behind is recovered first."""
    run = directory.run()
    for recovered in journal.recover(directory.path):
        say(str(recovered))
    return run.status == "complete" or (run.status == "interrupted" and run.measured_from_ns > 0)


def _checked(run: Run, metrics: RunMetrics) -> Run:
    """The run, found invalid if it read another number of records than the brokers count."""
    if run.status == "interrupted":
        reason = "the run was interrupted: what its consumers had not read yet counts as lost"
        return replace(run, invalid=tuple(dict.fromkeys((*run.invalid, reason))))
    counted = sum(run.end_offsets.values())
    config = run.experiment.topic.config
    thinned = any(n.startswith(("cleanup.", "retention.", "delete.retention")) for n in config)
    if run.unreadable or run.unread or thinned or counted == metrics.counts.records:
        return run
    reason = f"{metrics.counts.records} records were read, and the brokers count {counted}"
    return replace(run, invalid=tuple(dict.fromkeys((*run.invalid, reason))))


def _write_histograms(directory: RunDirectory, run: Run, metrics: RunMetrics) -> None:
    """As standard HdrHistogram logs, which other tools read."""
    folder = directory.path / HISTOGRAMS
    folder.mkdir(exist_ok=True)
    named = {
        "latency": metrics.latency,
        "acknowledgement": metrics.acknowledgement,
        "corrected": metrics.corrected,
    }
    started = datetime.fromisoformat(run.started_at).timestamp()
    for name, distribution in named.items():
        if distribution is not None:
            interval = Interval(0.0, metrics.seconds_measured, _histogram(distribution))
            write(folder / f"{name}.hlog", HdrLog(started, (interval,)))


def _histogram(distribution: Distribution) -> Histogram:
    return Histogram.from_buckets(
        distribution.buckets,
        min_ns=round(distribution.min_ms * 1e6),
        max_ns=round(distribution.max_ms * 1e6),
    )


def _labels(directories: Sequence[RunDirectory]) -> list[str]:
    """Short names that tell the runs apart: cells by their values, others by their directory."""
    runs = [directory.run() for directory in directories]
    has_repeats = any(run.repeat for run in runs)
    names = []
    for directory, run in zip(directories, runs, strict=True):
        name = cell_label(run) or directory.path.resolve().name
        if run.is_again:
            names.append(f"{name}, again")
        else:
            names.append(f"{name} #{run.repeat + 1}" if has_repeats else name)
    told_apart = [
        name if names.count(name) == 1 else f"{name} ({_place(directory.path)})"
        for name, directory in zip(names, directories, strict=True)
    ]
    return [with_coldness(name, [run]) for name, run in zip(told_apart, runs, strict=True)]


def _origin(directory: RunDirectory) -> str:
    path = directory.path.resolve()
    return str(path.parent if path.parent.name == CELLS else path)


def _place(path: Path) -> str:
    path = path.resolve()
    parts = path.parts[-3:] if path.parent.name == CELLS else path.parts[-2:]
    return "/".join(parts)


def _verdict(shown: Shown) -> tables.Table:
    assert shown.verdict is not None
    return tables.verdict(shown.verdict)


def _without_bulk(metrics: RunMetrics) -> RunMetrics:
    def slim(distribution: Distribution | None) -> Distribution | None:
        return None if distribution is None else replace(distribution, buckets=())

    parts = {name: replace(part, buckets=()) for name, part in metrics.parts.items()}
    return replace(
        metrics,
        latency=slim(metrics.latency),
        acknowledgement=slim(metrics.acknowledgement),
        corrected=slim(metrics.corrected),
        parts=parts,
        seconds=(),
    )


def require_some(shown: Sequence[Shown], directories: Sequence[RunDirectory]) -> None:
    """Raise unless there is a run to show."""
    if shown:
        return
    failed = failures(directories)
    if failed:
        raise TestbedError(
            f"no run was carried out to its end; {failed[0][0]}: {failed[0][1]}",
            "the reason of each is in its run.json",
        )
    raise BadInput("these runs were interrupted before their load began", "run them again")
