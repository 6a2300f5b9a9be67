"""Bin packing of partitions into lanes, repeated while their sizes change. Pure.

A new algorithm is one new file here (`domain.plugins`).
"""

from penstock.autoscaler.core.packing.problem import Assignment, Pack, Problem
from penstock.domain.autoscaling import Algorithm

__all__ = ["Algorithm", "Assignment", "Pack", "Problem"]
