"""Whether a run measured again gives the same: on a fresh cluster, and on one that is kept.

Eight settings, light to heavy, on loopback and with 10 ms of delay each way. Each is run on three
fresh clusters, warmed up as `penstock run` does it, and three times more on the last of these. The
spread of a setting is its largest mean latency over its smallest, of the runs that are valid, warm
and steady; a run that says that it is not is no false figure, and is counted apart.

`interval_coverage` asks more of the 95 % interval of a single run than it promises: it is made of
what varies within the run, and must cover the mean over all runs, fresh and kept.

Then what observing costs: one load on one cluster, with looks at the processes of the brokers (as
every run does), with none, and with questions to their agents as often (as runs did before), in turn.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Figure, Row, main
from penstock import specs
from penstock.analysis.analyze import analyze
from penstock.analysis.session import session
from penstock.domain.errors import TestbedError
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import ObserverCost, Run, RunSpec
from penstock.runs import execute as carrying
from penstock.runs.clusters import prepare
from penstock.runs.execute import execute
from penstock.runs.run_directory import RunDirectory
from penstock.runs.sampling import Sampler
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

Say = Callable[[str], None]

FRESH, KEPT = 3, 3
LIGHT, MEDIUM, HEAVY = "light", "medium", "heavy"
_LINKS = {
    "links": [{"src": "any", "dst": "any", "condition": {"delay": {"kind": "constant", "ms": 10}}}]
}
_PLACES: dict[str, dict[str, Any]] = {
    "loopback": {"brokers": 3},
    "10 ms links": {"brokers": 3, "place": "namespaces", "network": _LINKS},
}
_SIDES = ("processes", "nothing", "agents")


@dataclass(frozen=True)
class Setting:
    """One load on one kind of cluster. Rates are of each producer."""

    load: str
    place: str
    producers: int
    rate_per_s: float
    acks: str
    linger_ms: float
    size_bytes: int = 200

    @property
    def name(self) -> str:
        per_s = self.producers * self.rate_per_s
        return (
            f"{self.load}, {self.place}: {per_s:,.0f}/s × {self.size_bytes} B, acks={self.acks}, "
            f"linger.ms={self.linger_ms:g}"
        )

    def spec(self, seconds: float, seed: int) -> RunSpec:
        return specs.parse(
            {
                "name": "repeatability",
                "cluster": _PLACES[self.place],
                "topic": {"name": "repeatability", "partitions": 6, "replication": 3},
                "workload": {
                    "producers": self.producers,
                    "arrivals": {"kind": "poisson", "rate_per_s": self.rate_per_s},
                    "payload": {"size_bytes": self.size_bytes},
                    "duration_s": seconds,
                },
                "settings": {"acks": self.acks, "linger.ms": self.linger_ms},
                "seed": seed,
            },
            RunSpec,
        )


SETTINGS = (
    Setting(LIGHT, "loopback", 1, 50, "all", 5),
    Setting(MEDIUM, "loopback", 2, 200, "all", 0),
    Setting(MEDIUM, "loopback", 2, 500, "1", 5),
    # The one that showed 17,470, 2,371, 1,312 and 36 ms.
    Setting(HEAVY, "loopback", 2, 600, "all", 0),
    Setting(HEAVY, "loopback", 2, 5_000, "all", 10, 1_000),
    Setting(LIGHT, "10 ms links", 1, 50, "all", 5),
    Setting(MEDIUM, "10 ms links", 2, 200, "all", 100),
    Setting(MEDIUM, "10 ms links", 2, 500, "1", 20),
)
QUICK = (SETTINGS[1],)


@dataclass(frozen=True)
class Done:
    """One run of a setting and what it showed."""

    setting: Setting
    is_fresh: bool
    run: Run
    metrics: RunMetrics

    @property
    def mean_ms(self) -> float:
        assert self.metrics.latency is not None
        return self.metrics.latency.mean_ms.value

    @property
    def says(self) -> str:
        """Why its figures are not those of the setting, by its own word; empty if they are."""
        steadiness = self.metrics.steadiness
        if self.run.invalid:
            return "invalid"
        if self.run.coldness:
            return "cold"
        return "unsteady" if steadiness is None or steadiness.state != "steady" else ""

    def covers(self, mean_ms: float) -> bool:
        assert self.metrics.latency is not None
        interval = self.metrics.latency.mean_ms
        return (
            interval.low is not None
            and interval.high is not None
            and (interval.low <= mean_ms <= interval.high)
        )


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    fresh, kept, seconds = (1, 2, 12.0) if quick else (FRESH, KEPT, 15.0)
    with tempfile.TemporaryDirectory() as scratch:
        ran: list[tuple[Setting, bool, Path]] = []
        sides: dict[str, list[Path]] = {side: [] for side in _SIDES}
        for number, setting in enumerate(QUICK if quick else SETTINGS):
            for cluster_number in range(fresh):
                say(f"{setting.name}: cluster {cluster_number + 1} of {fresh}")
                is_last = cluster_number == fresh - 1
                is_observed = is_last and setting is SETTINGS[1]
                with _cluster(setting, say) as cluster:
                    for repeat in range(1 + (kept if is_last else 0)):
                        path = Path(scratch) / f"{number}-{cluster_number}-{repeat}"
                        seed = 1 + 10 * cluster_number + repeat
                        _run(setting.spec(seconds, seed), cluster, path, say)
                        ran.append((setting, repeat == 0, path))
                    if is_observed:
                        _observe(
                            setting, cluster, Path(scratch), 1 if quick else 6, seconds, sides, say
                        )
        say("counting")
        spark = session("local[*]")
        try:
            every = [path for _, _, path in ran] + [p for paths in sides.values() for p in paths]
            metrics = analyze(spark, every)
        finally:
            spark.stop()
        done = [
            Done(setting, is_fresh, RunDirectory(path).run(), metrics[path])
            for setting, is_fresh, path in ran
        ]
        costs = [RunDirectory(path).run().observer for path in sides["processes"]]
    p99 = {
        side: [found.percentiles_ms["99"].value for p in paths if (found := metrics[p].latency)]
        for side, paths in sides.items()
    }
    return _figures(done, p99, [cost for cost in costs if cost is not None])


@contextmanager
def _cluster(setting: Setting, say: Say) -> Iterator[Cluster]:
    spec = setting.spec(1, 1).cluster
    with Cluster(
        spec, toolchain=find_toolchain(os.environ, on_progress=say), on_progress=say
    ) as cluster:
        yield cluster


def _run(spec: RunSpec, cluster: Cluster, path: Path, say: Say) -> None:
    path.mkdir()
    warmed = prepare(cluster, spec, say)
    run = execute(spec, cluster, RunDirectory(path), warm_up=warmed, on_progress=say)
    if run.status != "complete":
        raise TestbedError(f"a run failed: {run.reason}")


# --- what observing costs ------------------------------------------------------------------------


class _Blind(Sampler):
    """Looks at nothing."""

    def _look(self, asks: bool) -> None:
        pass


class _Asking(Sampler):
    """Asks the brokers' agents at every look."""

    def _look(self, asks: bool) -> None:
        super()._look(asks=True)


def _observe(
    setting: Setting,
    cluster: Cluster,
    scratch: Path,
    turns: int,
    seconds: float,
    sides: dict[str, list[Path]],
    say: Say,
) -> None:
    samplers = dict(zip(_SIDES, (Sampler, _Blind, _Asking), strict=True))
    for turn in range(turns):
        for side, sampler in samplers.items():
            say(f"observer, {side}, turn {turn + 1} of {turns}")
            path = scratch / f"{side}-{turn}"
            carrying.Sampler = sampler  # type: ignore[attr-defined]
            try:
                _run(setting.spec(seconds, 100 + turn), cluster, path, say)
            finally:
                carrying.Sampler = Sampler  # type: ignore[attr-defined]
            sides[side].append(path)


# --- figures -------------------------------------------------------------------------------------


def _figures(
    done: Sequence[Done], p99: dict[str, list[float]], costs: Sequence[ObserverCost]
) -> tuple[dict[str, Any], list[Row]]:
    by_setting: dict[str, Any] = {}
    covering: list[bool] = []
    spreads: dict[str, list[float]] = {"fresh": [], "kept": []}
    rows: list[Row] = []
    for setting in dict.fromkeys(one.setting for one in done):
        of_it = [one for one in done if one.setting == setting]
        good = [one for one in of_it if not one.says]
        overall_ms = sum(one.mean_ms for one in good) / len(good) if good else float("nan")
        covering += [one.covers(overall_ms) for one in good]
        spread = {
            "fresh": _spread([one.mean_ms for one in good if one.is_fresh]),
            "kept": _spread([one.mean_ms for one in good if not one.is_fresh]),
        }
        if setting.load != HEAVY:
            for side, ratio in spread.items():
                if ratio is not None:
                    spreads[side].append(ratio)
        said = [one.says for one in of_it if one.says]
        by_setting[setting.name] = {
            "spread_fresh": spread["fresh"],
            "spread_kept": spread["kept"],
            "runs": [
                {
                    "fresh": one.is_fresh,
                    "mean_ms": one.mean_ms,
                    "interval_ms": _interval(one),
                    "p50_ms": one.metrics.latency.percentiles_ms["50"].value
                    if one.metrics.latency
                    else None,
                    "says": one.says,
                    "why": _why(one),
                    "warm_up_s": _warm_up_s(one),
                }
                for one in of_it
            ],
        }
        rows.append(
            Row(
                setting.name,
                f"mean {Figure.of([one.mean_ms for one in of_it])} ms; of {len(of_it)} runs "
                f"{', '.join(f'{said.count(s)} {s}' for s in dict.fromkeys(said)) or 'all good'}; "
                f"spread fresh {_shown(spread['fresh'])}, kept {_shown(spread['kept'])}",
                "",
            )
        )
    warm_up = Figure.of([_warm_up_s(one) for one in done if one.is_fresh])
    coverage = sum(covering) / len(covering) if covering else float("nan")
    observer = {
        side: Figure.of([a / b for a, b in zip(p99[side], p99["nothing"], strict=True)])
        for side in ("processes", "agents")
        if p99["nothing"]
    }
    worst = {side: max(ratios) if ratios else float("nan") for side, ratios in spreads.items()}
    keys = {
        "spread_fresh": worst["fresh"],
        "spread_kept": worst["kept"],
        "interval_coverage": coverage,
        "warm_up_s": {"median": warm_up.median, "max": warm_up.highest},
        "observer_cost": {
            "p99_with_over_without": observer.get("processes"),
            "p99_asking_agents_over_without": observer.get("agents"),
            "cpu_share": max((cost.share for cost in costs), default=None),
        },
        "runs": len(done),
        "steady_runs": len(covering),
        "settings": by_setting,
    }
    rows += [
        Row(
            "spread_fresh (light and medium)",
            f"{worst['fresh']:.3g}",
            "≤ 1.25",
            worst["fresh"] <= 1.25,
        ),
        Row(
            "spread_kept (light and medium)",
            f"{worst['kept']:.3g}",
            "≤ 1.25",
            worst["kept"] <= 1.25,
        ),
        Row(
            "interval_coverage",
            f"{coverage:.2f} of {len(covering)} runs",
            "≥ 0.85",
            coverage >= 0.85,
        ),
        Row("warm_up_s", f"{warm_up.median:.0f}, at most {warm_up.highest:.0f}", "≤ 90"),
        *(Row(f"observer_cost: p99, {side} / nothing", ratio) for side, ratio in observer.items()),
    ]
    return keys, rows


def _spread(means_ms: Sequence[float]) -> float | None:
    return max(means_ms) / min(means_ms) if len(means_ms) > 1 else None


def _shown(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _interval(one: Done) -> list[float | None]:
    assert one.metrics.latency is not None
    mean = one.metrics.latency.mean_ms
    return [mean.low, mean.high]


def _why(one: Done) -> str:
    steadiness = one.metrics.steadiness
    why = (*one.run.invalid, one.run.coldness, steadiness.sentence if steadiness else "")
    return "; ".join(filter(None, why))


def _warm_up_s(one: Done) -> float:
    state = one.run.cluster_state
    return state.warm_up.took_s if state and state.warm_up else 0.0


if __name__ == "__main__":
    main("repeatability", measure)
