"""Shared by all Kafka clients: properties and security, admin requests, offsets, log sizes."""
