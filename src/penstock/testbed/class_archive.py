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
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import Parts, find_parts


def make_archive(parts: Parts) -> None:
    """Run one broker once, and let Java write down the classes it had loaded when it ends."""
    draft = parts.class_archive.with_suffix(".draft")
    spec = ClusterSpec(brokers=1, observe=False)
    try:
        with Cluster(spec, parts=replace(parts, class_archive=draft, archive_classes=True)) as one:
            one.process(1).send(signal.SIGTERM)
            one.process(1).wait_ended(120)
        draft.rename(parts.class_archive)
    finally:
        draft.unlink(missing_ok=True)


def main() -> None:
    parts = find_parts(os.environ)
    if not parts.class_archive.exists():
        print("preparing Kafka's classes for quick starts", flush=True)
        make_archive(parts)


if __name__ == "__main__":
    main()
