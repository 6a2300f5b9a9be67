"""Why a record was rejected: a kind to count by, and a detail for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from errno import ENOMEM

# Longest reason, in characters: enough for an error message, and small in the table of rejects.
_MOST = 500
# Characters that break a line or a terminal: control characters and Unicode's line ends.
_UNPRINTABLE = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), " ")


class RejectKind(StrEnum):
    """Few and fixed: each is a label of the metric `penstock_rejects_total`."""

    BAD_HEADER = "bad-header"
    DECODER_DIED = "decoder-died"
    DUPLICATE_KEY = "duplicate-key"
    FUNCTION_FAILED = "function-failed"
    NO_TABLE = "no-table"
    NOT_AVRO = "not-avro"
    NOT_FINITE = "not-finite"
    NOT_JSON = "not-json"
    NOT_UTF8 = "not-utf8"
    TOO_MUCH_MEMORY = "too-much-memory"
    TOO_SLOW = "too-slow"
    UNKNOWN_SCHEMA = "unknown-schema"
    UNREADABLE = "unreadable"
    UNREPRESENTABLE = "unrepresentable"
    WRONG_TYPE = "wrong-type"


@dataclass(frozen=True)
class Rejection:
    """Why one record was rejected. Its text is the content of the column `reason`."""

    kind: RejectKind
    detail: str

    def __str__(self) -> str:
        return one_line(f"{self.kind}: {self.detail}")


class Rejected(Exception):
    """Raised where the kind of the rejection is known."""

    def __init__(self, kind: RejectKind, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(kind, one_line(detail))


def one_line(text: str) -> str:
    """The text, shortened, without control characters and lone surrogates, which no column takes."""
    text = text[: 4 * _MOST]  # before the rest, which is slow with a text of a gigabyte
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8").translate(_UNPRINTABLE)
    return " ".join(clean.split())[:_MOST]


def described(error: BaseException) -> str:
    """One line about an error, whatever its own text is."""
    try:
        text = one_line(str(error))
    except Exception:  # of a user's class, whose __str__ may fail too
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def is_for_memory(error: BaseException) -> bool:
    """Whether the error or one of its causes says that memory was exhausted."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        if isinstance(now, MemoryError) or (isinstance(now, OSError) and now.errno == ENOMEM):
            return True
        seen.add(id(now))
        now = now.__cause__ or now.__context__
    return False


def rejection_of(error: BaseException, kind: RejectKind = RejectKind.UNREPRESENTABLE) -> Rejection:
    """The rejection of the record that raised this error; `kind` if the error does not have one."""
    if isinstance(error, Rejected):
        return error.rejection
    if isinstance(error, MemoryError):
        return Rejection(RejectKind.TOO_MUCH_MEMORY, described(error))
    return Rejection(kind, described(error))
