"""Designs of campaigns: which combinations of a matrix are run. One file per kind."""

from penstock.domain.designs.design import Combination, Design

__all__ = ["Combination", "Design"]
