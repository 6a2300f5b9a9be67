"""Whether a value lies within what was measured, and by how much it does not. Pure."""

from __future__ import annotations


def beyond(what: str, value: float, low: float, high: float, measured: str) -> str | None:
    """A sentence that names the value and how far it is out; None if it is within. `measured` says
    what the range is of."""
    times = low / value if value < low else value / high
    # A rate that is drawn or rounded is never exactly that of the calibration.
    if times < 1.05:
        return None
    span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{value:g} {what}: {times:.1f} times beyond the {span} {measured}"
