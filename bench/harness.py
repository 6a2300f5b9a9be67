"""What every benchmark shares: its options, repeated figures, the machine, JSON and table.

.venv/bin/python bench/NAME.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock import __version__, specs
from penstock.cli import output
from penstock.domain.errors import PenstockError, TestbedError
from penstock.domain.progress import Progress
from penstock.domain.warm_up import RequestKind
from penstock.runs.warm_up import warm_up
from penstock.testbed.cluster import Cluster

# Why the brokers of this benchmark were not warm when it measured them; see `warmed`.
_cold: list[str] = []


@dataclass(frozen=True)
class Figure:
    """A figure measured several times: the median is the result, the range its spread."""

    median: float
    lowest: float
    highest: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} [{self.lowest:.3g}, {self.highest:.3g}]"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, what it showed, what was aimed at."""

    name: str
    measured: object
    aim: str = ""
    met: bool | None = None


def main(
    name: str, measure: Callable[[bool, Callable[[str], None]], tuple[dict[str, Any], list[Row]]]
) -> None:
    """Run `measure(quick, say)`; it gives the keys of the JSON and the rows of the table."""
    parser = argparse.ArgumentParser(prog=f"bench/{name}.py")
    parser.add_argument("--quick", action="store_true", help="less of everything, within 5 minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cleans up, as Ctrl-C does
    try:
        with output.progress() as say:
            keys, rows = measure(options.quick, say)
    except PenstockError as error:
        output.error(str(error))
        sys.exit(error.exit_code)
    keys = {**keys, "cold": _cold, "quick": options.quick, "machine": machine()}
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(specs.dump_json(keys))
    missed = [row.name for row in rows if row.met is False]
    output.outcome(
        f"{name}: {', '.join(missed)} short of the aim." if missed else f"{name}: every aim is met."
    )
    marks = {True: "met", False: "short", None: ""}
    output.table(
        ["figure", "median [range]", "aim", ""],
        [[row.name, str(row.measured), row.aim, marks[row.met]] for row in rows],
    )
    for sentence in _cold:
        output.warn(sentence)


def warmed(cluster: Cluster, say: Progress, *kinds: RequestKind) -> None:
    """Warm the cluster up for these kinds of requests, as for a run; if it stays cold, the figures
    come with a warning."""
    for kind in kinds or (None,):
        done = warm_up(cluster, kind, on_progress=say)
        if done is not None and done.sentence:
            _cold.append(done.sentence)


def kafka_tool(cluster: Cluster, command: list[str]) -> str:
    """Run one of Kafka's own tools (class and arguments) on the first producer's host; its output."""
    argv = [str(cluster.toolchain.java.path), "-cp", cluster.toolchain.classpath, *command]
    done = subprocess.run(
        cluster.command_on("producer-1", argv),
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": os.defpath, **cluster.lease.environment},
    )
    if done.returncode:
        raise TestbedError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def machine() -> dict[str, Any]:
    """Where it was measured; figures of two machines do not compare."""
    return {
        "cores": os.cpu_count(),
        "memory_mb": psutil.virtual_memory().total // 2**20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "penstock": __version__,
        "load_average": round(os.getloadavg()[0], 2),
    }
