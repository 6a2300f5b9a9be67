"""From a scenario to run directories: matrix, campaign, execution, validity; the experiments."""

from penstock.extras import require

require("testbed", "psutil", "pyarrow")
