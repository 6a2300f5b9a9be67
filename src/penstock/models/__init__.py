"""Predictions. Pure: numbers in, numbers out.

Every model states its symbols with units, its assumptions, its source and the range in which it holds.

calibration    physics of a machine and its cluster, fitted to measured runs
observation    what a fit uses of a run: latencies, CPU, requests, collections
path           the path of messages through Kafka as it is, simulated event by event
queueing       M/PH/1: mean and whole distribution of the time in a queue with one server
record_batch   sizes of Kafka's record batches, and what they take on disk
requests       sizes of produce requests around them, and on the wire
storage        disks and network of brokers: use, time until full, retention that fits, imbalance
three_stages   the document's rule for the latency of producers that batch
throughput     producers and consumers that always have more to send, and their overhead
"""

from penstock.extras import require

require("models", "numba", "scipy")
