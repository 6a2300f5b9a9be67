"""How readers of a run unpack records, one file per kind. A new one is one new file here
(`domain.plugins`)."""

from penstock.domain.client_kind import ReaderKind

__all__ = ["ReaderKind"]
