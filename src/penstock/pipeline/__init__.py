"""Everything on Spark: traces to metrics. The only importer of pyspark; it starts no load.

    session    the one place that makes a Spark session
    analysis   run directories → `domain.metrics.RunMetrics`, all runs of a campaign in one job

In between, functions from DataFrame to DataFrame, in the order in which a message passes them:

    traces     the Parquet files of many runs as one DataFrame, with a column `run`
    states     sent joined with received: one row per message, with its copies
    latency    how long each message took, and the parts of it
    buckets    HDR buckets as Spark expressions, equal to `measure.histogram`
    summary    counts per run, stretch of time and bucket: small enough to collect
    assembly   those counts → RunMetrics, in plain numpy; no Spark
"""
