"""Runs against one of them: which differences exceed the noise. Pure; not what the cause was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.domain.errors import BadInput
from penstock.domain.metrics import Estimate
from penstock.measure.batch_means import CONFIDENCE
from penstock.measure.batch_means import compare as difference_of
from penstock.report import numbers
from penstock.report.figures import Figure, figures
from penstock.report.shown import Shown, Side, sides

# A sentence per side is read up to here; of more sides the sentence gives the ranges.
_SIDES_IN_A_SENTENCE = 4
# From here on some differences exceed the noise by chance, and the reader must know.
_MANY_DIFFERENCES = 20
_INTERVAL = f"{100 * CONFIDENCE:g} % interval"
# A broken promise is worth its words even if one run cannot say how much of it is noise.
_BROKEN = "share.acknowledged_yet_lost"


@dataclass(frozen=True)
class Measured:
    """One figure of one side, and how it differs from the base."""

    estimate: Estimate | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    exceeds_noise: bool = False
    # Whether there was enough to tell: both have intervals, neither side is invalid, and if there
    # is no difference beyond the noise, one from nothing to the larger would have been one.
    is_judged: bool = False
    # Why there is no estimate, although the runs of this side have the figure.
    withheld: str = ""


@dataclass(frozen=True)
class Row:
    """One figure over all sides; the first is the base."""

    figure: str
    title: str
    unit: str
    is_key: bool
    values: tuple[Measured, ...]


@dataclass(frozen=True)
class ComparedSide:
    """What is compared: a run, or the repeats of one cell."""

    label: str
    runs: tuple[str, ...]
    problems: tuple[str, ...]
    unsteadiness: str = ""  # why its times are not compared; empty if they are


@dataclass(frozen=True)
class Comparison:
    """All figures of all sides against the first side, and what it comes to in a sentence."""

    sides: tuple[ComparedSide, ...]
    rows: tuple[Row, ...]
    sentence: str
    notes: tuple[str, ...]

    @property
    def base(self) -> str:
        return self.sides[0].label


def compare(runs: Sequence[Shown]) -> Comparison:
    """The first run (with its repeats) is the base. At least two must be left after grouping."""
    found = sides(runs)
    if len(found) < 2:
        raise BadInput(
            "there is nothing to compare: it takes two runs that are not repeats of each other",
            "name another run, or campaign, after this one",
        )
    metrics = [shown.metrics for side in found for shown in side.runs]
    rows = tuple(_row(figure, found) for figure in figures(metrics))
    compared = tuple(
        ComparedSide(s.label, tuple(shown.label for shown in s.runs), s.problems, s.unsteadiness)
        for s in found
    )
    return Comparison(
        sides=compared,
        rows=rows,
        sentence=_sentence(compared, rows),
        notes=tuple(_notes(found, rows)),
    )


def _row(figure: Figure, found: Sequence[Side]) -> Row:
    base, *others = found
    old = base.estimate(figure)
    is_usable = not base.problems
    values = [
        Measured(old),
        *(_measured(old, s.estimate(figure), is_usable and not s.problems) for s in others),
    ]
    slim = tuple(
        replace(
            value,
            estimate=_without_batches(value.estimate),
            withheld=numbers.NOT_STEADY if side.withholds(figure) else "",
        )
        for value, side in zip(values, found, strict=True)
    )
    return Row(figure.name, figure.title, figure.unit, figure.is_key, slim)


def _without_batches(estimate: Estimate | None) -> Estimate | None:
    """What they were for is done, and they would be nine tenths of the JSON."""
    return None if estimate is None else replace(estimate, batches=())


def _measured(old: Estimate | None, new: Estimate | None, is_usable: bool) -> Measured:
    if old is None or new is None:
        return Measured(new)
    ratio = new.value / old.value if old.value > 0 else None
    if not is_usable:
        return Measured(new, difference=new.value - old.value, ratio=ratio)
    found = difference_of(old, new)
    half_width = None if found.low is None or found.high is None else (found.high - found.low) / 2
    larger = max(abs(old.value), abs(new.value))
    return Measured(
        new,
        difference=found.difference,
        low=found.low,
        high=found.high,
        ratio=ratio,
        exceeds_noise=found.exceeds_noise,
        is_judged=half_width is not None
        and (found.exceeds_noise or found.difference == 0 or half_width <= larger),
    )


# --- in words ------------------------------------------------------------------------------------


def _sentence(compared: Sequence[ComparedSide], rows: Sequence[Row]) -> str:
    base, *others = compared
    keys = [row for row in rows if row.is_key]
    broken = next((row for row in rows if row.figure == _BROKEN), None)
    if base.problems:
        return f"{base.label} cannot be the base: {base.problems[0]}."
    if not keys:
        return "Nothing was sent in these runs: there is nothing to compare."
    if len(others) > _SIDES_IN_A_SENTENCE:
        return _ranges(base, others, keys)
    return " ".join(
        f"{side.label} against {base.label}: {_differences(base, side, i, keys, broken)}."
        for i, side in enumerate(others, 1)
    )


def _differences(
    base: ComparedSide, side: ComparedSide, place: int, keys: Sequence[Row], broken: Row | None
) -> str:
    if side.problems:
        return f"not compared, since {side.problems[0]}"
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
    if within:
        parts.append(f"{numbers.listed(within)}: no difference beyond the noise")
    if unknown:
        parts.append(f"{numbers.listed(unknown)}: too little to tell")
    if absent:
        parts.append(f"{numbers.listed(absent)}: not measured on both sides")
    if unsteady:
        culprit = side if side.unsteadiness else base
        parts.append(
            f"{numbers.listed(unsteady)}: not compared, since {culprit.label} was not steady: "
            f"{culprit.unsteadiness}"
        )
    if broken is not None:
        old, new = (broken.values[i].estimate for i in (0, place))
        if old and new and (old.value or new.value):
            texts = [numbers.quantity(e.value, broken.unit) for e in (new, old)]
            parts.append(f"{broken.title}: {texts[0]} against {texts[1]}")
    return "; ".join(parts)


def difference_text(row: Row, measured: Measured, old: Estimate | None) -> str:
    """+24 ms (×2.0)."""
    if measured.difference is None:
        return numbers.NOTHING
    text = numbers.difference(measured.difference, row.unit)
    if old is None or measured.estimate is None:
        return text
    ratio = numbers.ratio(measured.estimate.value, old.value)
    return f"{text} ({ratio})" if ratio and measured.difference else text


def _ranges(base: ComparedSide, others: Sequence[ComparedSide], keys: Sequence[Row]) -> str:
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
        ends = [
            numbers.difference(end, row.unit) for end in dict.fromkeys((min(beyond), max(beyond)))
        ]
        texts.append(f"{row.title} in {len(beyond)} ({' to '.join(ends)})")
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


def _notes(found: Sequence[Side], rows: Sequence[Row]) -> Iterator[str]:
    if all(len(side.used) > 1 and len(side.steady) != 1 for side in found):
        yield f"Noise is what varies from repeat to repeat ({_INTERVAL})."
    else:
        yield (
            f"Noise is what varies within a run ({_INTERVAL} from batch means) where there "
            "are no repeats; what varies from run to run shows in repeats only."
        )
    left_out = [s.label for side in found for s in side.runs if s not in side.used]
    if left_out:
        yield f"Left out, since their figures cannot be used: {'; '.join(left_out)}."
    unsteady = [s.label for side in found for s in side.used if s.unsteadiness]
    if unsteady:
        yield f"Left out of all times, since they were not steady: {'; '.join(unsteady)}."
    judged = sum(measured.is_judged for row in rows for measured in row.values)
    if judged >= _MANY_DIFFERENCES:
        yield (
            f"If none of these {judged} differences were real, about "
            f"{judged * (1 - CONFIDENCE):.0f} would still exceed the noise by chance."
        )
