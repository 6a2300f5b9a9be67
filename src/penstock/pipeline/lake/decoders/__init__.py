"""Decoders: the value of a record → columns. One file per kind.

The kinds are found by importing every module of this package, so a new one is one new file (and
its words in `domain.lake.decoder`).
"""

from importlib import import_module
from pkgutil import iter_modules

from penstock.pipeline.lake.decoders.decoding import Decoded, Decoding, decoding_of

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Decoded", "Decoding", "decoding_of"]
