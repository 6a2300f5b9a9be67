"""The group of a pipeline: the hosts that land into one lake, and their controllers.

The topics of a group are named after its pipeline. Two pipelines of one name with different lakes
would therefore share them, and command each other's hosts. So a group has a random id, which every
message carries: on Spark it is the id of the checkpoint; plain consumers share a file.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.lake.checkpoint import CONSUMERS, Checkpoint, Identity, read_identity
from penstock.lake.ownership import make_directory
from penstock.specs.files import create_file

_FILE = "group.json"


def consumers_path(pipeline: Pipeline) -> Path:
    """The directory of the checkpoints of plain consumers, each in a directory named by number."""
    return Path(pipeline.checkpoint_path) / CONSUMERS


@dataclass(frozen=True)
class Group:
    """`is_plain`: plain consumers, one host per lane; otherwise a pipeline on Spark, one host."""

    pipeline: Pipeline
    is_plain: bool

    def host_of(self, lane: int) -> int:
        return lane if self.is_plain else 0

    def id(self) -> str | None:
        """None if nothing has run with this checkpoint yet. Only reads."""
        identity = self._plain() if self.is_plain else self._spark()
        if identity is None:
            return None
        identity.check_owner(self.pipeline, Path(self.pipeline.checkpoint_path))
        return identity.id

    def make_id(self) -> str:
        """The id of plain consumers; it is created if there is none. Of several processes that try
        at once, one creates it and all get the same."""
        file = consumers_path(self.pipeline) / _FILE
        make_directory(file.parent)
        if not file.exists():
            with suppress(FileExistsError):
                create_file(file, specs.dump_json(Identity.new(self.pipeline)))
        id_ = self.id()
        assert id_ is not None
        return id_

    def landers(self) -> Collection[int]:
        """Numbers of the plain consumers that have ever landed something. Each may have left a
        micro-batch half landed, which it finishes when it restarts, even if the topic lost its
        messages."""
        if not self.is_plain:
            return ()
        paths = consumers_path(self.pipeline).glob("[0-9]*")
        numbered = (path for path in paths if path.name.isdigit())
        return sorted(int(p.name) for p in numbered if Checkpoint(p).newest_report >= 0)

    def _spark(self) -> Identity | None:
        checkpoint = Checkpoint(Path(self.pipeline.checkpoint_path))
        if consumers_path(self.pipeline).exists():
            raise BadInput(
                f"{checkpoint.path}: is the checkpoint of plain consumers",
                "run them with penstock autoscaler run --consumers",
            )
        return checkpoint.identity() if (checkpoint.path / "pipeline.json").exists() else None

    def _plain(self) -> Identity | None:
        file = consumers_path(self.pipeline) / _FILE
        return read_identity(file) if file.exists() else None
