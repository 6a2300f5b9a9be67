"""A process that removes a testbed after its owner has died.

It waits for the end of its standard input, whose other end only the owner holds: the kernel
closes that however the owner dies, kill −9 included. Should the janitor be killed too, the next
command sweeps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from penstock.testbed.lease import Lease, lifeline, release


def watch(lease: Lease) -> subprocess.Popen[bytes]:
    """Start the janitor of a testbed. Close its standard input to let it go to work."""
    # It holds the testbed's lock, so that no other container interferes while it removes things.
    with lifeline(lease) as lock:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.testbed.janitor", str(lease.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Not marked: it must not kill itself. It ends by itself when its work is done.
            env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
            pass_fds=(lock,),
        )


def dismiss(watching: subprocess.Popen[bytes]) -> None:
    """What it watched is released: it finds the directory gone, and goes."""
    assert watching.stdin is not None
    watching.stdin.close()
    watching.wait()


def main() -> None:
    directory = Path(sys.argv[1])
    sys.stdin.buffer.read()
    if directory.exists():
        lease = Lease(directory.name, directory)
        release(lease)
        # A tool that the owner had started (`ip netns add …`) may have ended after that.
        time.sleep(2)
        release(lease)


if __name__ == "__main__":
    main()
