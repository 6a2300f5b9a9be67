"""Strategies: which solution of a partitioning problem to take. One file per kind."""

from penstock.planner.strategies.strategy import Strategy

__all__ = ["Strategy"]
