"""Shapes that a campaign's figures should show. One file per kind, found by importing them all."""

from importlib import import_module
from pkgutil import iter_modules

from penstock.domain.shapes.shape import Finding, Point, Shape

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Finding", "Point", "Shape"]
