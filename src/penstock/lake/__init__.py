"""Lands topics in Delta tables: lanes read, decode and write; one streaming query runs them."""

from penstock.extras import require

require("lake", "deltalake", "fastavro", "prometheus_client", "pyarrow", "pyspark")
