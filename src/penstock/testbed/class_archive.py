"""An archive of Kafka's classes, parsed and verified once, that every later start maps in.

Three brokers on two cores spend most of their start on loading the same classes three times;
with the archive they are ready in two thirds of the time. Java ignores an archive that does not
fit its version or the jars, so it can only help. Made once, by set-up:

    python -m penstock.testbed.class_archive
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from penstock.domain.cluster import ClusterSpec
from penstock.specs.files import draft_of
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import Toolchain, find_toolchain


def make_archive(toolchain: Toolchain) -> None:
    """Run one broker once, and let Java write down the classes it had loaded when it ends."""
    spec = ClusterSpec(brokers=1, observe=False)
    with (
        draft_of(toolchain.class_archive) as draft,
        Cluster(
            spec, toolchain=replace(toolchain, class_archive=draft, archive_classes=True)
        ) as cluster,
    ):
        cluster.process(1).send(signal.SIGTERM)
        cluster.process(1).wait_ended(120)


def main() -> None:
    toolchain = find_toolchain(os.environ)
    if not toolchain.class_archive.exists():
        print("preparing Kafka's classes for quick starts", flush=True)
        make_archive(toolchain)


if __name__ == "__main__":
    main()
