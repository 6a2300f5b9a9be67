"""What others send to the same cluster meanwhile, and what it takes of the machine. Pure.

Symbols: requests/s of all other producers together, and their MB/s. Each request costs what one of
the model's does: the broker's part, that of the followers, and one reader's. Assumes that others'
requests come at random, and that it has as many replicas as the predicted run. Traffic that the
cluster had while the model was calibrated is part of its costs already: only more counts here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from penstock.domain.errors import BadInput
from penstock.domain.value import Bound, Doc, Value
from penstock.models.path.physics import Physics
from penstock.models.path.predict import PathModel


@dataclass(frozen=True, kw_only=True)
class OtherTraffic(Value):
    """Produced by others, on all brokers together."""

    requests_per_s: Annotated[float, Bound(ge=0), Doc("produce requests")] = 0.0
    mb_per_s: Annotated[float, Bound(ge=0), Doc("of records, as they are sent")] = 0.0

    def __bool__(self) -> bool:
        return self.requests_per_s > 0 or self.mb_per_s > 0

    def cores(self, physics: Physics, replication: int) -> float:
        """Cores that it keeps busy."""
        followers = replication - 1
        request_s = (
            physics.broker_request
            + physics.broker_answer
            + followers
            * (physics.follower_fetch + physics.follower_answer + physics.follower_append)
            + physics.reader_fetch
            + physics.reader_answer
        )
        byte_s = physics.broker_byte + followers * physics.follower_byte
        used = self.requests_per_s * request_s + 1e6 * self.mb_per_s * byte_s
        return used * (1 + physics.after)

    def beside(self, model: PathModel, replication: int) -> PathModel:
        """The model of the machine while others send."""
        if not self:
            return model
        if model.cores == 0:
            raise BadInput(
                "other traffic: the model does not know the brokers' cores, so it cannot tell what "
                "others take of them",
                "calibrate again while the other traffic is there",
            )
        if (taken := self.cores(model.physics, replication)) >= model.cores:
            raise BadInput(
                f"other traffic: it would take {taken:.3g} of the {model.cores} cores by itself",
                "give what other clients send: requests/s and MB/s of all brokers together",
            )
        return replace(
            model,
            physics=self._added(model.physics, replication),
            others=tuple(self._added(one, replication) for one in model.others),
        )

    def _added(self, physics: Physics, replication: int) -> Physics:
        # In pieces like those of other work in the background; of a request, if there is none.
        burst_s = physics.background_burst or physics.broker_request + physics.broker_answer or 1e-4
        per_s = physics.background_per_s + self.cores(physics, replication) / burst_s
        return replace(physics, background_per_s=per_s, background_burst=burst_s)
