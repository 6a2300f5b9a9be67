"""Decisions by models and measured facts: how many brokers and partitions. Pure.

partitioning   one topic's brokers and partitions as an optimisation problem, solved exactly
strategies     which of its solutions to take; one file per strategy
"""
