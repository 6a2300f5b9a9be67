"""`penstock pipeline capacity`: what one lane does at saturation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

import penstock
from penstock.cli import options, output
from penstock.lake.capacity import PHASES, Capacity


@click.command()
@click.argument("file", type=options.PATH, required=False)
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of parallel lanes; figures are per lane.",
)
@click.option(
    "--cycles",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Measure at most this many micro-batches.",
)
@click.option("--quick", is_flag=True, help="Without FILE: a quarter of the data.")
@options.lake_master
@options.as_json
def capacity(
    file: Path | None, lanes: int, cycles: int, quick: bool, master: str, as_json: bool
) -> None:
    """Measure what one lane lands per second when more is waiting than it can take.

    With FILE, reads its topics from the beginning into temporary tables. Without FILE, starts a
    cluster on this machine and measures three cases of up to 144 partitions.
    """
    with output.progress() as say:
        measured = penstock.capacity(
            file,
            lanes=lanes,
            cycles=cycles,
            quick=quick,
            master=master,
            on_progress=say,
            on_warning=output.warn,
        )
    cases = {name: lane and asdict(lane) for name, lane in measured.items()}
    if not output.conclude(_sentence(measured), {"lanes": lanes, "cases": cases}, as_json):
        return
    output.table(
        ("case", "cycles", "MB/s p50 [p5, p95]", "as stored", "rows/s p50", "cycle s", *PHASES),
        [
            (
                name,
                lane.cycles,
                f"{_mb(lane.bytes_per_s.p50)} [{_mb(lane.bytes_per_s.p5)}, {_mb(lane.bytes_per_s.p95)}]",
                "" if lane.stored_bytes_per_s is None else _mb(lane.stored_bytes_per_s),
                f"{lane.rows_per_s.p50:,.0f}",
                f"{lane.cycle_s.p50:.2f}",
                *(f"{lane.phase_s[phase]:.3f}" for phase in PHASES),
            )
            for name, lane in measured.items()
            if lane is not None
        ],
    )
    output.note("Phases are medians in seconds; the rest is Spark's overhead and waiting.")
    stored = [c.stored_bytes_per_s for c in measured.values() if c and c.stored_bytes_per_s]
    if stored:
        output.note(
            "MB/s counts keys and values; as stored, compressed as in Kafka's logs, is the unit of "
            f"write speeds: autoscaling.lane_capacity_bytes_per_s: {min(stored):.0f}"
        )


def _sentence(measured: dict[str, Capacity | None]) -> str:
    known = [lane.bytes_per_s.p50 for lane in measured.values() if lane is not None]
    if not known:
        return "Capacity unknown: the topics hold too few records to saturate a lane."
    least, most = _mb(min(known)), _mb(max(known))
    return f"One lane lands {least if least == most else f'{least} to {most}'} MB/s at saturation."


def _mb(value: float) -> str:
    return f"{value / 1e6:.1f}"
