"""How much CPU a broker uses, and how much of it Java's compilers: read from /proc, almost free.

Not through the broker's agent: asking that costs the broker 12 ms of CPU, and is work to compile.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.testbed.cluster import Cluster

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# The names that Java gives its threads, as far as the kernel keeps them (15 characters).
_COMPILERS = ("C1 CompilerThre", "C2 CompilerThre")
_UTIME, _STIME = 11, 12  # of /proc/PID/stat, counted after the name


@dataclass
class BrokerCpu:
    """CPU seconds of all brokers since they started, and of their compilers since the first look.

    Java ends compiler threads that are idle, and with them their count; so it is kept here.
    """

    cluster: Cluster
    _seen_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def read(self) -> tuple[float, float]:
        """(all, compilers), in seconds. A broker that does not run counts with nothing."""
        total_s = 0.0
        for broker in self.cluster.broker_ids:
            process = self.cluster.process(broker).process
            if process is None:
                continue
            total_s += _used_s(Path(f"/proc/{process.pid}/stat"))[1]
            with suppress(OSError):
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    name, used_s = _used_s(task / "stat")
                    if name in _COMPILERS:
                        self._seen_s[process.pid, int(task.name)] = used_s
        return total_s, sum(self._seen_s.values())


def _used_s(stat: Path) -> tuple[str, float]:
    """The name of a process or thread, and its CPU seconds; nothing if it has just ended."""
    with suppress(OSError, ValueError):
        text = stat.read_text()
        end = text.rindex(")")
        columns = text[end + 2 :].split()
        return text[text.index("(") + 1 : end], _TICK_S * (
            int(columns[_UTIME]) + int(columns[_STIME])
        )
    return "", 0.0
