"""Scaling policies. A new one is one new file here (`domain.plugins`)."""

from penstock.autoscaler.core.policy import Decider, Decision, Trigger, View
from penstock.domain.autoscaling import Policy

__all__ = ["Decider", "Decision", "Policy", "Trigger", "View"]
