"""Network conditions: what a link does to packets. One file per kind of delay and of loss.

A new one is one new file here (`domain.plugins`).
"""

from penstock.domain.network.condition import (
    Cut,
    Link,
    LinkCondition,
    NetworkProfile,
    NetworkSpec,
    ProfileStep,
)
from penstock.domain.network.delay import Delay
from penstock.domain.network.loss import Loss

__all__ = [
    "Cut",
    "Delay",
    "Link",
    "LinkCondition",
    "Loss",
    "NetworkSpec",
    "NetworkProfile",
    "ProfileStep",
]
