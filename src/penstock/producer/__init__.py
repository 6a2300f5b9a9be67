"""Producers that an application imports: light, with confluent-kafka and numpy alone.

situation   what an adaptive producer knows when it decides, and what it decides
policies    how it decides; one file per policy. Pure
"""
