"""Public API: what this machine can do."""

from __future__ import annotations

import os

from penstock.testbed.capabilities import Capabilities, examine


def doctor() -> Capabilities:
    """What this machine can do, and how to get what is missing. Changes and fetches nothing."""
    return examine(os.environ)
