"""The autoscaler: monitor, packing and controller, for the fewest lanes that keep up."""

from penstock.extras import require

require("lake", "deltalake", "prometheus_client", "pyarrow")
