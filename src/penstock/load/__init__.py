"""Open- and closed-loop load: schedule, contents, producer and reader processes, their traces."""

from penstock.extras import require

require("testbed", "psutil", "pyarrow")
