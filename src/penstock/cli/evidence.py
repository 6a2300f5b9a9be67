"""Prints runs on the terminal: warnings first, then the tables."""

from __future__ import annotations

from penstock.api.evidence import Evidence
from penstock.cli import output
from penstock.domain.errors import TestbedError
from penstock.report import outcome, tables
from penstock.report.notices import notices

VERDICT_EXIT = 10
_WORDS = {"invalid": "INVALID: ", "cold": "COLD: ", "unsteady": "NOT STEADY: "}


def show(evidence: Evidence, details: bool = False) -> None:
    """Print what follows the outcome: warnings, tables, verdicts, paths. `details`: every figure
    that the page has."""
    for cell, reason in evidence.failed:
        output.warn(f"failed: {cell}: {reason}")
    warn_of(evidence)
    runs = evidence.counted
    if len(runs) > tables.MOST_COLUMNS:
        output.table(*tables.overview(runs))
    elif runs and not details:
        output.table(*tables.summary(runs))
    elif runs:
        output.table(*tables.states(runs))
        output.table(*tables.latencies(runs))
        output.table(*tables.throughputs(runs))
        if (kpis := tables.kpis(runs)).rows:
            output.table(*kpis)
    verdicts = [run.verdict for run in runs if run.verdict and run.verdict.has_limits]
    if verdicts and len(runs) <= tables.MOST_VERDICTS:
        output.table(*(tables.verdicts(runs) if len(runs) > 1 else tables.verdict(verdicts[0])))
    if evidence.findings:
        output.table(
            ["expected", ""],
            [[f.sentence, "holds" if f.holds else "NOT FOUND"] for f in evidence.findings],
        )
    for report in evidence.reports:
        output.note(f"Evidence: {report}")


def warn_of(evidence: Evidence) -> None:
    """The notices of the page, without those that are in the outcome."""
    runs = evidence.counted
    alone = runs if len(runs) == 1 else []
    in_outcome = {
        *(why for run in alone for why in (run.run.coldness, run.unsteadiness)),
        *(finding.sentence for finding in evidence.disagreements[: outcome.MOST_DISAGREEMENTS]),
        *(finding.sentence for finding in evidence.drift if finding.state == "drift"),
    }
    for notice in notices(runs, evidence.disagreements, evidence.drift):
        if notice.text in in_outcome:
            continue
        about = f"{notice.label}: " if notice.label else ""
        text = f"{about}{_WORDS.get(notice.kind, '')}{notice.text}"
        if notice.kind == "note":
            output.note(text)
        else:
            output.warn(text)


def exit_code(evidence: Evidence) -> int:
    if evidence.failed:
        return TestbedError.exit_code
    return 0 if evidence.is_met else VERDICT_EXIT
