"""Records as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.domain.client_kind import ReaderKind


@dataclass(frozen=True, kw_only=True)
class PlainReader(ReaderKind):
    """A record is one message."""

    kind = "plain"

    def messages(self, value: bytes) -> Sequence[bytes]:
        return (value,)
