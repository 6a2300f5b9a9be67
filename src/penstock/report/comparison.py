"""Runs against one of them: which differences exceed the noise. Pure; not what the cause was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.domain.errors import BadInput
from penstock.domain.metrics import Estimate
from penstock.report import formatting
from penstock.report.figures import Figure, figures
from penstock.report.reported_run import ReportedRun, Side, sides
from penstock.stats.batch_means import CONFIDENCE
from penstock.stats.batch_means import compare as difference_of

# A sentence per side is read up to here; of more sides the sentence gives the ranges.
_SIDES_IN_A_SENTENCE = 4
# From here on some differences exceed the noise by chance, and the reader must know.
_MANY_DIFFERENCES = 20
_INTERVAL = f"{100 * CONFIDENCE:g} % interval"
# A broken promise is worth its words even if one run cannot say how much of it is noise.
_BROKEN = "share.acknowledged_yet_lost"


@dataclass(frozen=True)
class ComparedValue:
    """One figure of one side, and how it differs from the base."""

    estimate: Estimate | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    exceeds_noise: bool = False
    # Whether there was enough to tell: both have intervals, neither side is invalid, and if there
    # is not a difference beyond the noise, one from nothing to the larger would have been one.
    is_judged: bool = False
    # Why there is no estimate, although the runs of this side have the figure.
    withheld: str = ""


@dataclass(frozen=True)
class ComparisonRow:
    """One figure over all sides; the first is the base."""

    figure: str
    title: str
    unit: str
    is_key: bool
    values: tuple[ComparedValue, ...]


@dataclass(frozen=True)
class ComparedSide:
    """What is compared: a run, or the repeats of one cell."""

    label: str
    runs: tuple[str, ...]
    problems: tuple[str, ...]
    unsteadiness: str = ""  # why its times are not compared; empty if they are


@dataclass(frozen=True)
class Comparison:
    """All figures of all sides against the first side, with a summary in one sentence."""

    sides: tuple[ComparedSide, ...]
    rows: tuple[ComparisonRow, ...]
    sentence: str
    notes: tuple[str, ...]

    @property
    def base(self) -> str:
        return self.sides[0].label


def compare(runs: Sequence[ReportedRun]) -> Comparison:
    """The first run (with its repeats) is the base. At least two must be left after grouping."""
    all_sides = sides(runs)
    if len(all_sides) < 2:
        raise BadInput(
            "need at least two runs that are not repeats of each other",
            "add another run or campaign",
        )
    metrics = [reported.metrics for side in all_sides for reported in side.runs]
    rows = tuple(_row(figure, all_sides) for figure in figures(metrics))
    compared = tuple(
        ComparedSide(s.label, tuple(run.label for run in s.runs), s.problems, s.unsteadiness)
        for s in all_sides
    )
    return Comparison(compared, rows, _sentence(compared, rows), tuple(_notes(all_sides, rows)))


def _row(figure: Figure, compared: Sequence[Side]) -> ComparisonRow:
    base = compared[0]
    old = base.estimate(figure)
    values = []
    for side in compared:
        is_usable = not base.problems and not side.problems
        measured = _measured(None if side is base else old, side.estimate(figure), is_usable)
        withheld = formatting.NOT_STEADY if side.withholds(figure) else ""
        values.append(replace(measured, withheld=withheld))
    return ComparisonRow(figure.name, figure.title, figure.unit, figure.is_key, tuple(values))


def _measured(old: Estimate | None, new: Estimate | None, is_usable: bool) -> ComparedValue:
    # What the batches were for is done, and they would be nine tenths of the JSON.
    slim = None if new is None else replace(new, batches=())
    if old is None or new is None:
        return ComparedValue(slim)
    ratio = new.value / old.value if old.value > 0 else None
    change = difference_of(old, new)
    if not is_usable:
        return ComparedValue(slim, difference=change.difference, ratio=ratio)
    is_judged = False
    if change.low is not None and change.high is not None:
        is_narrow = (change.high - change.low) / 2 <= max(abs(old.value), abs(new.value))
        is_judged = change.exceeds_noise or change.difference == 0 or is_narrow
    return ComparedValue(
        slim,
        difference=change.difference,
        low=change.low,
        high=change.high,
        ratio=ratio,
        exceeds_noise=change.exceeds_noise,
        is_judged=is_judged,
    )


# --- in words ------------------------------------------------------------------------------------


def _sentence(compared: Sequence[ComparedSide], rows: Sequence[ComparisonRow]) -> str:
    base, *others = compared
    keys = [row for row in rows if row.is_key]
    broken = next((row for row in rows if row.figure == _BROKEN), None)
    if base.problems:
        return f"{base.label} cannot be the base: {base.problems[0]}."
    if not keys:
        return "Nothing was sent in these runs, so there is nothing to compare."
    if len(others) > _SIDES_IN_A_SENTENCE:
        return _ranges(base, others, keys)
    return " ".join(
        f"{side.label} against {base.label}: {_differences(base, side, i, keys, broken)}."
        for i, side in enumerate(others, 1)
    )


def _differences(
    base: ComparedSide,
    side: ComparedSide,
    place: int,
    keys: Sequence[ComparisonRow],
    broken: ComparisonRow | None,
) -> str:
    if side.problems:
        return f"not compared: {side.problems[0]}"
    beyond, within, unknown, absent, unsteady = [], [], [], [], []
    for row in keys:
        measured, old = row.values[place], row.values[0].estimate
        if measured.withheld or row.values[0].withheld:
            unsteady.append(row.title)
        elif measured.difference is None:
            absent.append(row.title)
        elif not measured.is_judged:
            unknown.append(row.title)
        elif measured.exceeds_noise:
            beyond.append(f"{row.title} {difference_text(row, measured, old)}")
        else:
            within.append(row.title)
    parts = [", ".join(beyond)] if beyond else []
    culprit = side if side.unsteadiness else base
    not_steady = f"not compared, since {culprit.label} was not steady: {culprit.unsteadiness}"
    for titles, what in (
        (within, "no difference beyond the noise"),
        (unknown, "too little to tell"),
        (absent, "not measured on both sides"),
        (unsteady, not_steady),
    ):
        if titles:
            parts.append(f"{formatting.listed(titles)}: {what}")
    if broken is not None:
        old, new = (broken.values[i].estimate for i in (0, place))
        if old and new and (old.value or new.value):
            texts = [formatting.quantity(e.value, broken.unit) for e in (new, old)]
            parts.append(f"{broken.title}: {texts[0]} against {texts[1]}")
    return "; ".join(parts)


def difference_text(row: ComparisonRow, measured: ComparedValue, old: Estimate | None) -> str:
    """+24 ms (×2.0)."""
    if measured.difference is None:
        return formatting.NOTHING
    text = formatting.difference(measured.difference, row.unit)
    if old is None or measured.estimate is None:
        return text
    ratio = formatting.ratio(measured.estimate.value, old.value)
    return f"{text} ({ratio})" if ratio and measured.difference else text


def _ranges(
    base: ComparedSide, others: Sequence[ComparedSide], keys: Sequence[ComparisonRow]
) -> str:
    """Of many sides: in how many of them a figure differs, and by how much."""
    texts = []
    for row in keys:
        if row.values[0].withheld or all(m.withheld for m in row.values[1:]):
            texts.append(f"{row.title} not compared")
            continue
        beyond = [m.difference for m in row.values[1:] if m.exceeds_noise and m.difference]
        if not beyond:
            texts.append(f"{row.title} in none")
            continue
        ends = dict.fromkeys((min(beyond), max(beyond)))
        by = " to ".join(formatting.difference(end, row.unit) for end in ends)
        texts.append(f"{row.title} in {len(beyond)} ({by})")
    left_out = sum(bool(side.problems) for side in others)
    more = f" {left_out} could not be used." if left_out else ""
    unsteady = [side for side in (base, *others) if side.unsteadiness and not side.problems]
    if unsteady:
        first = unsteady[0]
        more += (
            f" The times of {len(unsteady)} are not compared, since they were not steady "
            f"({first.label}: {first.unsteadiness})."
        )
    return (
        f"Of {len(others)} against {base.label}, a difference beyond the noise: "
        f"{'; '.join(texts)}.{more}"
    )


def _notes(compared: Sequence[Side], rows: Sequence[ComparisonRow]) -> Iterator[str]:
    if all(len(side.used) > 1 and len(side.steady) != 1 for side in compared):
        yield f"Noise is what varies from repeat to repeat ({_INTERVAL})."
    else:
        yield (
            f"Noise is what varies within a run ({_INTERVAL} from batch means) where there "
            "are no repeats: only repeats show what varies from run to run."
        )
    left_out = [s.label for side in compared for s in side.runs if s not in side.used]
    if left_out:
        yield f"Excluded because their figures cannot be used: {'; '.join(left_out)}."
    unsteady = [s.label for side in compared for s in side.used if s.unsteadiness]
    if unsteady:
        yield f"Excluded from all times because they were not steady: {'; '.join(unsteady)}."
    judged = sum(measured.is_judged for row in rows for measured in row.values)
    if judged >= _MANY_DIFFERENCES:
        yield (
            f"If none of these {judged} differences were real, about "
            f"{judged * (1 - CONFIDENCE):.0f} would still exceed the noise by chance."
        )
