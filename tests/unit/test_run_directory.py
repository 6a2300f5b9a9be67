"""The directory of a run: written, read back, and refused when it is not what it should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import specs
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.run import Run
from penstock.runs.run_directory import (
    RunDirectory,
    find_runs,
    make_directory,
    set_aside,
)
from penstock.specs.files import sole_owner

RUN = {
    "id": "orders-abc",
    "started_at": "2026-11-16T04:00:00+00:00",
    "versions": {"penstock": "0.1.0"},
    "spec": {
        "name": "orders",
        "topic": {"name": "orders"},
        "workload": {"arrivals": {"kind": "constant", "rate_per_s": 100}},
    },
}


def made(path: Path) -> RunDirectory:
    path.mkdir(parents=True, exist_ok=True)
    directory = RunDirectory(path)
    directory.write_run(specs.parse(RUN, Run))
    return directory


def test_a_run_survives(tmp_path: Path) -> None:
    assert made(tmp_path).run() == specs.parse(RUN, Run)


def test_two_runs_with_one_name_get_a_directory_each(tmp_path: Path) -> None:
    paths = [make_directory(tmp_path / "runs", "orders") for _ in range(3)]
    assert [path.name for path in paths] == ["orders", "orders-2", "orders-3"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    directory = made(tmp_path)
    data = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**data, "format": 99, "news": 1}))
    with pytest.raises(BadInput, match="format 99; this version of Penstock reads 4"):
        directory.run()


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "has no run.json"), ("{", "cut off"), ("[]", "format None")],
)
def test_a_bad_run_file_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(BadInput, match=words):
        RunDirectory(tmp_path).run()


def test_metrics_that_are_missing_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="penstock analyze"):
        made(tmp_path).metrics()


def test_a_campaign_stands_for_its_cells(tmp_path: Path) -> None:
    for name in ("002-r1", "001-r1"):
        made(tmp_path / "campaign" / "cells" / name)
    made(tmp_path / "campaign" / "cells" / ".001-r1-unfinished-1")
    single = made(tmp_path / "single")
    directories = find_runs([tmp_path / "campaign", single.path, single.path])
    assert [d.path.name for d in directories] == ["001-r1", "002-r1", "single"]
    with pytest.raises(BadInput, match="no such directory"):
        find_runs([tmp_path / "nothing"])


def test_only_one_command_works_on_a_directory(tmp_path: Path) -> None:
    with (
        sole_owner(tmp_path),
        pytest.raises(BadInput, match="another command"),
        sole_owner(tmp_path),
    ):
        pass
    with sole_owner(tmp_path):
        pass


def test_what_is_set_aside_is_kept(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "001-r1").mkdir()
        set_aside(tmp_path / "001-r1")
        assert (tmp_path / f".001-r1-unfinished-{number}").is_dir()
    set_aside(tmp_path / "nothing")


def test_a_full_disk_is_reported_and_the_old_text_kept(tmp_path: Path) -> None:
    directory = made(tmp_path)
    # /dev/full answers every write with "no space left".
    (tmp_path / ".run.json.draft").symlink_to("/dev/full")
    with pytest.raises(PenstockError, match="disk is full"):
        directory.write_run(specs.parse({**RUN, "id": "other"}, Run))
    assert directory.run().id == "orders-abc"
