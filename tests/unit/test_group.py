"""The id of a group: made once, kept in the lake, and of one lake only."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.autoscaler.group import Group
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.lake.checkpoint import Checkpoint


def pipeline(lake: Path, name: str = "p") -> Pipeline:
    streams = (Stream(topics=("t",), table="t"),)
    return Pipeline(name=name, bootstrap_servers="x:1", streams=streams, lake=str(lake))


def files(lake: Path) -> list[str]:
    return sorted(str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file())


def test_looking_for_an_id_makes_none(tmp_path: Path) -> None:
    for is_plain in (True, False):
        assert Group(pipeline(tmp_path), is_plain).id() is None
    assert list(tmp_path.iterdir()) == []


def test_plain_consumers_and_their_controller_share_one_id(tmp_path: Path) -> None:
    ids: list[str] = []

    def make() -> None:
        begin.wait()
        ids.append(Group(pipeline(tmp_path), is_plain=True).make_id())

    begin = threading.Barrier(8)
    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8 and len(set(ids)) == 1
    assert Group(pipeline(tmp_path), is_plain=True).id() == ids[0]
    assert files(tmp_path) == ["_pipelines/p/consumers/group.json"]


def test_each_lake_has_an_id_of_its_own(tmp_path: Path) -> None:
    ids = {Group(pipeline(tmp_path / lake), is_plain=True).make_id() for lake in ("a", "b")}
    assert len(ids) == 2


def test_on_spark_it_is_the_id_of_the_checkpoint(tmp_path: Path) -> None:
    identity = Checkpoint(Path(pipeline(tmp_path).checkpoint_path)).open(pipeline(tmp_path))
    assert Group(pipeline(tmp_path), is_plain=False).id() == identity.id


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_copy_of_a_lake_is_not_the_same_group(tmp_path: Path, is_plain: bool) -> None:
    first = pipeline(tmp_path / "a")
    if is_plain:
        Group(first, is_plain).make_id()
    else:
        Checkpoint(Path(first.checkpoint_path)).open(first)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(BadInput, match="is the checkpoint of the pipeline p into"):
        Group(pipeline(tmp_path / "b"), is_plain).id()
    other = replace(first, name="q", checkpoint=first.checkpoint_path)
    with pytest.raises(BadInput, match="and this one is q into"):
        Group(other, is_plain).id()


def test_plain_consumers_are_not_commanded_as_if_they_were_a_pipeline_on_spark(
    tmp_path: Path,
) -> None:
    Group(pipeline(tmp_path), is_plain=True).make_id()
    with pytest.raises(BadInput, match="is the checkpoint of plain consumers") as refused:
        Group(pipeline(tmp_path), is_plain=False).id()
    assert "--consumers" in refused.value.fix


def test_an_id_of_another_format_is_refused(tmp_path: Path) -> None:
    group = Group(pipeline(tmp_path), is_plain=True)
    group.make_id()
    file = tmp_path / "_pipelines/p/consumers/group.json"
    file.write_text(file.read_text().replace('"format": ', '"format": 9'))
    with pytest.raises(BadInput, match="this version of Penstock reads"):
        group.id()


def test_consumers_that_have_landed_something_are_known(tmp_path: Path) -> None:
    group = Group(pipeline(tmp_path), is_plain=True)
    assert list(group.landers()) == []
    group.make_id()
    for number in (0, 2, 10):
        reports = tmp_path / "_pipelines/p/consumers" / str(number) / "reports"
        reports.mkdir(parents=True)
        if number:
            (reports / "3.json").touch()
    (tmp_path / "_pipelines/p/consumers/topics").mkdir()
    assert list(group.landers()) == [2, 10]
    assert list(Group(pipeline(tmp_path / "other"), is_plain=False).landers()) == []
