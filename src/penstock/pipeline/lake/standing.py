"""Whether a pipeline's tables stand still: for those who look at them, or tidy them up."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from deltalake import DeltaTable

from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.files import sole_owner
from penstock.pipeline.lake.memory import CONSUMERS, Memory


class Standing(Enum):
    SETTLED = "settled"
    # Somebody lands just now.
    AT_WORK = "at work"
    # It was killed with a micro-batch in some of its tables, which its next life ends.
    HALF_LANDED = "half landed"


def standing(pipeline: Pipeline) -> Standing:
    memory = Memory(Path(pipeline.checkpoint_path))
    if not memory.path.is_dir():
        return Standing.SETTLED
    memories = [memory, *(Memory(path) for path in (memory.path / CONSUMERS).glob("[0-9]*"))]
    try:
        with sole_owner(memory.path):
            is_half_landed = any(_is_half_landed(pipeline, each) for each in memories)
            return Standing.HALF_LANDED if is_half_landed else Standing.SETTLED
    except BadInput:
        return Standing.AT_WORK


def _is_half_landed(pipeline: Pipeline, memory: Memory) -> bool:
    report = memory.report(memory.newest_report)
    if report is None or not report.has_ledger_rows:
        return False
    ledger = DeltaTable(str(Path(pipeline.lake) / pipeline.ledger_table))
    done = ledger.transaction_version(memory.identity().id)
    return done is None or done < report.batch
