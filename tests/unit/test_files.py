"""Locks that hold, and files that stay written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.domain.errors import BadInput, PenstockError
from penstock.specs.files import LOCK, create_file, draft_of, sole_owner, write_file

TRY = """
import sys
from pathlib import Path
from penstock.domain.errors import BadInput
from penstock.specs.files import sole_owner
try:
    with sole_owner(Path(sys.argv[1]), among_equals=sys.argv[2] == "shared"):
        print("held")
except BadInput:
    print("refused")
"""


def elsewhere(path: Path, kind: str) -> str:
    """What another process gets that tries to own it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(path), kind],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout.strip()


def test_another_process_is_refused_until_the_owner_lets_go(tmp_path: Path) -> None:
    with sole_owner(tmp_path):
        assert elsewhere(tmp_path, "alone") == "refused"
        assert elsewhere(tmp_path, "shared") == "refused"
    assert elsewhere(tmp_path, "alone") == "held"


def test_equals_share_and_keep_out_who_wants_it_alone(tmp_path: Path) -> None:
    with sole_owner(tmp_path, among_equals=True):
        assert elsewhere(tmp_path, "shared") == "held"
        assert elsewhere(tmp_path, "alone") == "refused"
        with pytest.raises(BadInput, match="another command"), sole_owner(tmp_path):
            pass


def test_the_lock_outlives_other_descriptors_of_its_file(tmp_path: Path) -> None:
    """A plain POSIX lock would be lost when any of them is closed."""
    with sole_owner(tmp_path):
        (tmp_path / LOCK).read_bytes()
        with pytest.raises(BadInput, match="another command"), sole_owner(tmp_path):
            pass
        assert elsewhere(tmp_path, "alone") == "refused"


def test_a_directory_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot be locked"), sole_owner(tmp_path / "nowhere"):
        pass


@pytest.mark.parametrize("write", [write_file, create_file])
def test_the_directory_is_synced_when_the_new_name_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
) -> None:
    synced: list[bool] = []
    original = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            assert os.path.samestat(os.fstat(descriptor), tmp_path.stat())
            synced.append((tmp_path / "file").exists())
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert callable(write)
    write(tmp_path / "file", "text")
    assert synced == [True]
    assert (tmp_path / "file").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_of_two_who_create_a_file_one_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    create_file(tmp_path / "file", "one")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_may_be_as_long_as_a_topic_can_be(tmp_path: Path) -> None:
    create_file(tmp_path / ("t" * 249), "one")
    assert (tmp_path / ("t" * 249)).read_text() == "one"


def test_a_draft_takes_the_place_of_its_file_only_if_it_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("old")
    with pytest.raises(KeyError), draft_of(path) as draft:
        draft.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with draft_of(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
