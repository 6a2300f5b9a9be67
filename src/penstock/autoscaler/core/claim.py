"""Claims: they decide which process is the controller of a group. Pure.

Kafka fences the older of two transactional producers, but it cannot tell which of the two should be
fenced: a controller that was disconnected for a while and comes back would fence the successor that
took over meanwhile. So a controller also writes a claim with a term that counts up. A process that
has claimed the group once, and finds a later claim of another process, ends. Only a process that
has not claimed it yet may take over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.domain.autoscaling import Claim, Message


@dataclass
class Claimant:
    """The process of a controller. It outlives connections to Kafka."""

    # Random.
    incarnation: str
    # Term of its last claim, even if it is not known whether it was written; 0: it never claimed.
    term: int = 0

    def is_superseded_by(self, claim: Claim | None) -> bool:
        return (
            self.term > 0
            and claim is not None
            and claim.incarnation != self.incarnation
            and claim.term >= self.term
        )

    def claim(self, known: Iterable[Message]) -> None:
        """Take a term above all that were seen, also by hosts: if the topic was deleted, they still
        know the term of their last controller, and ignore commands with a lower one."""
        self.term = 1 + max([self.term, *(message.term for message in known)])


def last_claim(messages: Iterable[Message]) -> Claim | None:
    """The claim with the highest term; among equal terms, the one written last."""
    claims = [message for message in messages if isinstance(message, Claim)]
    return max(reversed(claims), key=lambda claim: claim.term, default=None)
