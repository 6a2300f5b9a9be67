"""Link conditions as JSON and back, for the handler's socket and for the file of conditions."""

from __future__ import annotations

from typing import Any

from penstock.domain.network.condition import LinkCondition
from penstock.domain.network.delay import Delay
from penstock.domain.network.loss import Loss
from penstock.domain.value import Value, kind_of


def encode(condition: LinkCondition) -> dict[str, Any]:
    """Plain dicts and numbers; a delay or a loss says its kind."""
    return {
        **vars(condition),
        "delay": _encode_kind(condition.delay),
        "loss": _encode_kind(condition.loss),
    }


def decode(fields: dict[str, Any]) -> LinkCondition:
    return LinkCondition(
        **{
            **fields,
            "delay": _decode_kind(Delay, fields["delay"]),
            "loss": _decode_kind(Loss, fields["loss"]),
        }
    )


def _encode_kind(value: Value | None) -> dict[str, Any] | None:
    return None if value is None else {"kind": value.kind, **vars(value)}


def _decode_kind(word: type[Value], fields: dict[str, Any] | None) -> Any:
    if fields is None:
        return None
    arguments = {name: value for name, value in fields.items() if name != "kind"}
    kind = kind_of(word, fields["kind"])
    assert kind is not None
    return kind(**arguments)
