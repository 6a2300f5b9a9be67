"""A link's condition, the network of a testbed, and a profile of how it changes over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.network.delay import Delay
from penstock.domain.network.loss import Loss
from penstock.domain.value import Bound, Doc, FieldError, Value


@dataclass(frozen=True, kw_only=True)
class LinkCondition(Value):
    """What a link does to packets in one direction. The default is a perfect link.

    A *link* is an ordered pair of hosts: 3 brokers give 6 broker–broker links, and each has its
    own rate, its own queue and its own random numbers.
    """

    delay: Annotated[Delay | None, Doc("extra one-way delay")] = None
    loss: Annotated[Loss | None, Doc("which packets are lost")] = None
    duplicate: Annotated[float, Bound(ge=0, le=1), Doc("share of packets sent twice")] = 0.0
    reorder: Annotated[
        float, Bound(ge=0, le=1), Doc("share of packets that skip the delay and so overtake others")
    ] = 0.0
    in_order: Annotated[
        bool,
        Doc(
            "keep the order of packets although their delays vary; a late packet delays the ones behind it"
        ),
    ] = False
    rate_mbit: Annotated[
        float | None, Bound(gt=0, le=100_000), Doc("bandwidth in Mbit/s; default: unlimited")
    ] = None
    cut: Annotated[bool, Doc("drop all packets")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fix = "needs a delay: a packet overtakes others by skipping theirs"
        self.require(not self.reorder or self.delay is not None, "reorder", fix)
        self.require(not (self.reorder and self.in_order), "reorder", "contradicts in_order: true")

    @property
    def shapes_packets(self) -> bool:
        """Whether packets must pass through an emulator (a rate or a cut alone needs none)."""
        return bool(self.delay or self.loss or self.duplicate or self.reorder)


PERFECT = LinkCondition()


@dataclass(frozen=True, kw_only=True)
class Link(Value):
    """A condition and the links it is for.

    Hosts are named one by one (`producer-1`, `broker-3`, `consumer-2`, `controller-101`) or by
    group (`producers`, `brokers`, `consumers`, `any`). Later entries win over earlier ones.
    """

    src: Annotated[str, Doc("host or group the packets come from")]
    dst: Annotated[str, Doc("host or group the packets go to")]
    both_ways: Annotated[bool, Doc("the same condition also from dst to src")] = True
    condition: LinkCondition


def Cut(src: str, dst: str, both_ways: bool = True) -> Link:
    """A link that drops all packets."""
    return Link(src=src, dst=dst, both_ways=both_ways, condition=LinkCondition(cut=True))


@dataclass(frozen=True, kw_only=True)
class NetworkSpec(Value):
    """The hosts around the router, beside the brokers, and the conditions of their links."""

    producers: Annotated[int, Bound(ge=0, le=100), Doc("producer hosts")] = 1
    consumers: Annotated[int, Bound(ge=0, le=100), Doc("consumer hosts")] = 1
    links: tuple[Link, ...] = ()
    backend: Annotated[
        Literal["auto", "netem", "nfqueue"], Doc("auto: netem where the kernel has it")
    ] = "auto"
    congestion_control: Annotated[
        str, Doc("TCP congestion control; cubic, since bbr hides packet loss")
    ] = "cubic"
    seed: Annotated[
        int, Doc("the same seed draws the same losses and delays (nfqueue; netem draws its own)")
    ] = 1


@dataclass(frozen=True, kw_only=True)
class ProfileStep(Value):
    """New conditions of links from `at_s` on; other links are unchanged."""

    at_s: Annotated[float, Bound(ge=0), Doc("seconds from the start of the profile")]
    links: tuple[Link, ...]


@dataclass(frozen=True, kw_only=True)
class NetworkProfile(Value):
    """A network that changes over time.

    With nfqueue, the same seed reproduces losses and delays.
    """

    steps: tuple[ProfileStep, ...]
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        times = [step.at_s for step in self.steps]
        self.require(bool(self.steps), "steps", "must have at least one step")
        self.require(times == sorted(times), "steps", "must be in order of at_s")

    def check_hosts(self, hosts: HostNames) -> None:
        """Raise a `FieldError` for a host that the network does not have, in any step."""
        for number, step in enumerate(self.steps):
            try:
                hosts.conditions(step.links)
            except FieldError as error:
                raise FieldError(f"steps.{number}.{error.field}", error.value, error.rule) from None


@dataclass(frozen=True)
class HostNames:
    """Which hosts a testbed has; resolves the names and groups that links are given by."""

    brokers: tuple[str, ...]
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    controllers: tuple[str, ...] = field(default=())

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.brokers, *self.controllers, *self.producers, *self.consumers)

    def resolve(self, name: str) -> tuple[str, ...]:
        """The hosts of the host or group `name`."""
        # A separate controller shares the fate of the brokers' network unless named by itself.
        groups = {
            "brokers": (*self.brokers, *self.controllers),
            "producers": self.producers,
            "consumers": self.consumers,
            "any": self.all,
        }
        if name in groups:
            return groups[name]
        if name in self.all:
            return (name,)
        raise FieldError(
            "link", name, f"is not a host here; use one of {', '.join((*groups, *self.all))}"
        )

    def conditions(self, links: tuple[Link, ...]) -> dict[tuple[str, str], LinkCondition]:
        """(source, destination) → condition, for every pair that `links` name; later ones win."""
        result: dict[tuple[str, str], LinkCondition] = {}
        for link in links:
            pairs = [(s, d) for s in self.resolve(link.src) for d in self.resolve(link.dst)]
            if link.both_ways:
                pairs += [(d, s) for s, d in pairs]
            result.update({(s, d): link.condition for s, d in pairs if s != d})
        return result
