"""Notices about hosts: hanging, replaced or absent. Each is reported once while it lasts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.autoscaler.core.actions import Action, AutoscalerNotice, Send, warning
from penstock.autoscaler.core.host import Host
from penstock.autoscaler.core.policy import counted
from penstock.domain.autoscaling import Command, HostAnswer

_SHOWN = 3


class Stalls:
    """Hosts whose main thread hangs while their heartbeat continues.

    They keep their partitions: a turn may still end, and land what it has read.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stalled: set[int] = set()

    def on_answer(self, answer: HostAnswer) -> list[Action]:
        is_stalled, was_stalled = answer.busy_s > self._limit_s, answer.host in self._stalled
        if is_stalled and not was_stalled:
            self._stalled.add(answer.host)
            text = (
                f"host {answer.host} has not finished a turn for {answer.busy_s:.0f} s, and what it "
                f"holds ({_held(answer)}) is not read meanwhile: a stuck disk or a decoder that "
                "does not return? If it does not recover, kill its process: it restarts from the "
                "ledger"
            )
            return [warning(text)]
        if was_stalled and not is_stalled:
            self._stalled.discard(answer.host)
            return [AutoscalerNotice(f"host {answer.host} is responsive again")]
        return []


def _held(answer: HostAnswer) -> str:
    names = sorted(name for held in answer.lanes.values() for name in held)
    more = ", …" if len(names) > _SHOWN else ""
    listed = f": {', '.join(names[:_SHOWN])}{more}" if names else ""
    return f"{counted(len(names), 'partition')}{listed}"


class Ghosts:
    """Old processes that answer for a host after a newer one has: paused ones that were resumed.

    Each is commanded to end. The ledger would refuse it only if the newer process has landed
    something since; otherwise the two would compete, and either could be refused.
    """

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def on_answer(self, answer: HostAnswer) -> list[Action]:
        end = Send(answer.host, Command(verb="end", incarnation=answer.incarnation))
        if answer.incarnation in self._reported:
            return [end]
        self._reported.add(answer.incarnation)
        text = f"an earlier process of host {answer.host} is back: it is commanded to end"
        return [warning(f"{text}; stop it if it stays (no record is landed twice)"), end]


class Absences:
    """No host runs; or some do, but one that must report first does not."""

    def __init__(self) -> None:
        self._is_alone = False
        self._awaited: set[int] = set()

    def among(self, hosts: Mapping[int, Host]) -> list[Action]:
        actions: list[Action] = []
        was_alone, self._is_alone = self._is_alone, not any(h.is_alive for h in hosts.values())
        if self._is_alone and not was_alone:
            actions.append(warning("no pipeline or consumer answers: is the pipeline running?"))
        awaited = {n for n, host in hosts.items() if not (host.is_known or host.is_alive)}
        before, self._awaited = self._awaited, awaited
        if not self._is_alone and (unknown := awaited - before):
            what = "but must report what it holds before any partition moves"
            actions.append(warning(f"{named(unknown)} does not run, {what}"))
        return actions


def named(hosts: Collection[int]) -> str:
    return f"host {', '.join(map(str, sorted(hosts)))}"
