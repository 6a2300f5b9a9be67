"""Computes metrics from traces, on Spark.

    session    the one place that makes a Spark session
    analyze    run directories → `domain.metrics.RunMetrics`, all runs of a campaign in one job

In between, functions from DataFrame to DataFrame, in the order in which a message passes them:

    traces     the Parquet files of many runs as one DataFrame, with a column `run`
    join       sent joined with received: one row per message, with its copies
    latency    how long each message took, and the parts of it
    buckets    HDR buckets as Spark expressions, equal to `stats.histogram`
    summary    counts per run, stretch of time and bucket: small enough to collect
    assembly   those counts → RunMetrics, in plain numpy; no Spark
"""

from penstock.extras import require

require("analysis", "pandas", "pyarrow", "pyspark")
