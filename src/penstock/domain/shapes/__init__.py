"""Shapes that a campaign's figures should show. One file per kind."""

from penstock.domain.shapes.shape import CurvePoint, Finding, Shape

__all__ = ["CurvePoint", "Finding", "Shape"]
