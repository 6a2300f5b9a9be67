"""Adaptive policies: which configuration a producer changes to. One file per kind. Pure."""

from penstock.producer.policies.adaptive_policy import AdaptivePolicy

__all__ = ["AdaptivePolicy"]
