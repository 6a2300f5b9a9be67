"""Penstock finds, proves and keeps the right configuration of a Kafka data pipeline."""

__version__ = "0.1.0"
