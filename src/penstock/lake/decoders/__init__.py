"""Decoders: they turn the value of a record into columns. One file per kind.

A new one is one new file here (`domain.plugins`). Third-party code (fastavro, a user's function)
runs in its own process: `penstock.lake.isolated`.
"""

from penstock.domain.lake.decoder import Decoder
from penstock.lake.decoders.decoding import Decoding, decoding_of

__all__ = ["Decoder", "Decoding", "decoding_of"]
