"""Predictions. Pure: numbers in, numbers out.

Every model states its symbols with units, its assumptions, its source and the range in which it holds.

calibration    physics of a machine and its cluster, fitted to measured runs
costs          what requests, messages and bytes cost on average, from counters
design         the short runs of a calibration
fitted         a fitted model with its runs and errors: `model.json`
forecast       a prediction together with its run spec, alone or beside a measurement
observation    what a fit uses of a run: latencies, CPU, requests, collections
other_traffic  what others send meanwhile, and what it takes of the machine
path           the path of messages through Kafka as it is, simulated event by event
queueing       M/PH/1: mean and whole distribution of the time in a queue with one server
ranges         whether a value lies within what was measured
reading        consumers that always have more to read
record_batch   sizes of Kafka's record batches, and what they take on disk
requests       sizes of produce requests around them, and on the wire
storage        disks and network of brokers: use by broker, retention that fits
three_stages   S0's rule for the latency of producers that batch
throughput     producers that always have more to send, and their overhead
traffic        what a predicted run takes of networks and disks: time until full, imbalance
workers        who simulates the runs of a fit
"""

from penstock.extras import require

require("models", "numba", "scipy")
