"""`penstock experiment`: measures what a cluster can do, as facts for planning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import getdoc
from pathlib import Path

import click

from penstock.api import experiments as api
from penstock.cli import options, output
from penstock.domain import plugins
from penstock.domain.errors import BadInput, TestbedError, unknown_choice
from penstock.domain.grid import EXPERIMENTS, LEAST_PARTITION_COUNTS, LEAST_REPEATS
from penstock.report import facts as facts_page
from penstock.runs.experiments.series import ExperimentSeries
from penstock.runs.resuming import Step

_options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
    click.argument("spec", type=options.PATH, required=False),
    click.option(
        "--quick",
        "is_quick",
        is_flag=True,
        help="Short smoke test: few partition counts, one repeat.",
    ),
    click.option(
        "--out",
        type=options.PATH,
        default=Path("runs"),
        show_default=True,
        help="Output directory.",
    ),
    click.option("--resume", type=options.PATH, help="Resume the experiment in this directory."),
    click.option("--retry-failed", is_flag=True, help="With --resume, also retry failed points."),
    options.as_json,
]


_USE = """SPEC is a grid (`penstock schema experiment`); without one, the default grid is measured: every
point three times, each on its own cluster. That takes 45 to 80 minutes on two cores. Exits with 4 if
a point failed."""


class _Kinds(click.Group):
    """A command for each kind of experiment, also for those of other packages."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return plugins.names(EXPERIMENTS)

    def get_command(self, _context: click.Context, name: str) -> click.Command:
        def measure(**options: object) -> None:
            _measure(name, **options)  # type: ignore[arg-type]

        command: Callable[..., None] = measure
        for option in reversed(_options):
            command = option(command)
        known = plugins.names(EXPERIMENTS)
        if name not in known:
            raise BadInput(f"experiment {name!r} {unknown_choice(name, known)}")
        try:
            text, line = getdoc(plugins.get(EXPERIMENTS, name)), None
        except BadInput as error:  # of another package; it must not hide the others
            text = line = f"(broken) {error.message}"
        return click.command(name, help=f"{text}\n\n{_USE}", short_help=line)(command)


@click.group(cls=_Kinds)
def experiment() -> None:
    """Measure what a cluster can do.

    The result is a file of cluster facts.
    """


def _measure(
    kind: str,
    spec: Path | None,
    is_quick: bool,
    out: Path,
    resume: Path | None,
    retry_failed: bool,
    as_json: bool,
) -> None:
    series = _series(kind, spec, is_quick, out, resume)
    if series.grid.is_below_minimum:
        output.warn(
            f"{len(series.grid.partitions)} partition counts × {series.grid.repeats} repeats is below "
            f"the minimum of {LEAST_PARTITION_COUNTS} × {LEAST_REPEATS}: do not plan with the result"
        )
    with output.bar() as bar:

        def step(now: Step) -> None:
            bar.step(now.done, now.total, now.label, now.seconds_left)

        try:
            measured = api.carry_on(
                series, retry_failed=retry_failed, on_progress=bar.say, on_step=step
            )
        except KeyboardInterrupt:
            output.warn(f"resume with: penstock experiment {kind} --resume {series.path}")
            raise
    if as_json:
        output.emit_json(measured.to_data())
    else:
        _show(measured)
    if measured.failed:
        sys.exit(TestbedError.exit_code)


def _series(
    kind: str, spec: Path | None, is_quick: bool, out: Path, resume: Path | None
) -> ExperimentSeries:
    if resume is None:
        return api.begin(kind, spec, quick=is_quick, out=out)
    return api.reopen(kind, resume, is_alone=spec is None and not is_quick)


def _show(measured: api.ExperimentResult) -> None:
    facts, kind = measured.facts, measured.series.kind
    output.outcome(measured.outcome)
    output.table(*facts_page.points(facts, kind))
    if facts.lines:
        output.table(*facts_page.lines(facts))
    output.table(*facts_page.points(facts, kind, facts_page.USE_FIGURES))
    for point, reason in measured.failed:
        output.warn(f"failed: {point}: {reason}")
    for caveat in facts.caveats:
        output.note(f"Note: {caveat}.")
    output.note(f"Facts: {measured.facts_file}")
    output.note(f"Evidence: {measured.report}")
