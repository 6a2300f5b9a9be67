"""Predictions. Pure: numbers in, numbers out.

Every model states its symbols with units, its assumptions, its source and the range in which it holds.

path           the path of messages through Kafka as it is, simulated event by event
queueing       M/PH/1: mean and whole distribution of the time in a queue with one server
record_batch   sizes of Kafka's record batches, and what they take on disk
three_stages   the document's rule for the latency of producers that batch
"""

from penstock.extras import require

require("models", "numba", "scipy")
