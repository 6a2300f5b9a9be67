"""Shapes that a campaign's figures should show. One file per kind."""

from penstock.domain.shapes.shape import Finding, Point, Shape

__all__ = ["Finding", "Point", "Shape"]
