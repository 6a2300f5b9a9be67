"""Abstract decoder: turns a record's value into columns. The kinds are in `lake.decoders`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.domain.lake.columns import parse_type
from penstock.domain.value import FieldError, Value

# Description of the field `columns` of decoders.
COLUMN_TYPES = "column → type: long, double, string, array<long>, struct<a:long,b:string>, …"


@dataclass(frozen=True, kw_only=True)
class Decoder(Value, ABC):
    """Turns the value of a record into columns; `kind` says how."""

    plugin_group = "penstock.decoders"

    @abstractmethod
    def decoding(self, host: Any) -> Any:
        """Make the `penstock.Decoding` that does the work. `host`, a `penstock.DecoderHost`, runs
        third-party code."""

    def completed(self, read: Callable[[str], str]) -> Decoder:
        """A copy that contains the content of its files, since lanes do not have the files; `read`
        returns the text of a file."""
        return self


def check_columns(columns: Mapping[str, str]) -> None:
    if not columns:
        raise FieldError("columns", {}, "must name at least one column")
    for name, text in columns.items():
        if name.startswith(KAFKA_PREFIX):
            fix = f"begins with {KAFKA_PREFIX}, as the record's own columns do; rename it"
            raise FieldError("columns", name, fix)
        try:
            parse_type(text)
        except ValueError as error:
            raise FieldError(f"columns.{name}", text, str(error)) from None


# Topic, partition, offset, timestamp, key and headers of a record are columns of these names, so
# that a field called `key` or `timestamp` can be one too.
KAFKA_PREFIX = "kafka_"
