"""A real Kafka cluster on this machine: network, faults, broker metrics."""

from penstock.extras import require

require("testbed", "psutil", "trustme")
