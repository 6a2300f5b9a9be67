"""KEEP, our own algorithm: keep what fits, and move only what pays.

Every partition stays where it is, unless its lane is too full: then the least load that makes it
fit leaves. What leaves is placed where there is room, or in place of a smaller one that fits
elsewhere. A lane is emptied if that moves less than a lane is worth (`price`). If packing
everything from scratch needs fewer lanes, that packing gets the present lanes' numbers and is compared.
Then every partition that would move is tried at its present lane again, by moving others away: this
saves most. Those that move anyway go where most room stays, so that the next change moves less.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, combinations, count
from typing import Annotated

from penstock.autoscaler.core.packing.any_fit import BestFitDecreasing
from penstock.autoscaler.core.packing.problem import (
    CLEARLY,
    ROUNDING,
    Assignment,
    Problem,
    fewest_lanes,
)
from penstock.domain.autoscaling import Algorithm
from penstock.domain.value import Bound, Doc

# Partitions that are tried to be displaced for room, at each depth of the chain of displacements.
_CHAIN = (12, 4, 2)
# Number of lanes with the most room whose partitions are tried for that.
_WIDTH = 30
# After this many lanes that could not be emptied, no other is tried.
_FAILURES = 6
# All small sets of partitions of a lane are tried if it has at most this many.
_FEW = 10
_TRIES = 24
_ROUNDS = 3

Price = Callable[[int], float]


class Lanes:
    """Partitions (by number) on lanes, with the load moved so far, and undo."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.names = sorted(problem.speeds)
        self.size = [problem.speeds[p] for p in self.names]
        self.home = [problem.current.get(p, -1) for p in self.names]
        self.at = [-1] * len(self.names)
        self.members: dict[int, list[int]] = {}
        self.room: dict[int, float] = {}
        self.by_room: list[tuple[float, int]] = []
        self.moved = 0.0
        self._log: list[tuple[int, int]] = []
        self._slack = ROUNDING * problem.capacity

    # --- steps and undo --------------------------------------------------------------------------

    def open(self, lane: int) -> None:
        self.members[lane] = []
        self.room[lane] = self.problem.capacity_of(lane) + self._slack
        insort(self.by_room, (self.room[lane], lane))

    def close(self, lane: int) -> None:
        assert not self.members.pop(lane)
        del self.by_room[bisect_left(self.by_room, (self.room.pop(lane), lane))]

    def put(self, item: int, lane: int) -> None:
        """Move it to this lane; -1 is nowhere."""
        before, size = self.at[item], self.size[item]
        self._log.append((item, before))
        if before >= 0:
            self.members[before].remove(item)
            self._set_room(before, self.room[before] + size)
            if self.home[item] not in (-1, before):
                self.moved -= size
        if lane >= 0:
            self.members[lane].append(item)
            self._set_room(lane, self.room[lane] - size)
            if self.home[item] not in (-1, lane):
                self.moved += size
        self.at[item] = lane

    def mark(self) -> int:
        return len(self._log)

    def back_to(self, mark: int) -> None:
        while len(self._log) > mark:
            item, lane = self._log.pop()
            self.put(item, lane)
            self._log.pop()

    def _set_room(self, lane: int, room: float) -> None:
        del self.by_room[bisect_left(self.by_room, (self.room[lane], lane))]
        insort(self.by_room, (room, lane))
        self.room[lane] = room

    # --- places ----------------------------------------------------------------------------------

    def place(self, item: int, avoid: tuple[int, ...], budget: float, depth: int = 0) -> bool:
        """Place it at home, or where least room stays, or in place of a smaller one that fits
        elsewhere."""
        size, home = self.size[item], self.home[item]
        if home not in avoid and self.room.get(home, -1.0) >= size:
            self.put(item, home)
            return True
        limit = self.moved + budget
        if home >= 0:
            budget -= size
            if budget < 0:
                return False
        start = bisect_left(self.by_room, (size, -1))
        for _, lane in self.by_room[start : start + 1 + len(avoid)]:
            if lane not in avoid:
                self.put(item, lane)
                return True
        if depth == len(_CHAIN):
            return False
        for other, lane in self._smaller(size, avoid)[: _CHAIN[depth]]:
            mark = self.mark()
            self.put(other, -1)
            self.put(item, lane)
            left = limit - self.moved
            if (
                left >= 0
                and self.place(other, (*avoid, lane), left, depth + 1)
                and self.moved <= limit
            ):
                return True
            self.back_to(mark)
        return False

    def _smaller(self, size: float, avoid: tuple[int, ...]) -> list[tuple[int, int]]:
        """Partitions that it could replace, the cheapest first."""
        candidates = []
        for room, lane in self.by_room[-_WIDTH:]:
            if lane in avoid:
                continue
            needed = size - room
            fitting = [i for i in self.members[lane] if needed <= self.size[i] < size]
            for i in fitting:
                cost = self.size[i] if self.home[i] == lane else 0.0
                candidates.append((cost, self.size[i], i, lane))
        return [(i, lane) for _, _, i, lane in sorted(candidates)]

    def least_set(
        self, lane: int, needed: float, cost: Callable[[int], float]
    ) -> list[tuple[int, ...]]:
        """Sets of the lane's partitions with at least this much load, the cheapest first."""
        members = self.members[lane]
        if len(members) > _FEW:
            return [self._greedy_set(members, needed, cost)]
        sets = chain.from_iterable(combinations(members, many) for many in (1, 2, 3))
        loads = ((sum(self.size[i] for i in chosen), chosen) for chosen in sets)
        enough = ((load, chosen) for load, chosen in loads if load >= needed)
        cheapest = sorted((sum(map(cost, chosen)), load, chosen) for load, chosen in enough)[
            :_TRIES
        ]
        return [chosen for _, _, chosen in cheapest] or [tuple(members)]

    def _greedy_set(
        self, members: Iterable[int], needed: float, cost: Callable[[int], float]
    ) -> tuple[int, ...]:
        """The cheapest one that is enough; or from the cheapest per load on, without the needless."""
        alone = [i for i in members if self.size[i] >= needed]
        chosen: list[int] = []
        left = needed
        for i in sorted(members, key=lambda i: (cost(i) / (self.size[i] or 1), -self.size[i])):
            if left <= 0:
                break
            chosen.append(i)
            left -= self.size[i]
        for i in sorted(chosen, key=cost, reverse=True):
            if self.size[i] <= -left:
                chosen.remove(i)
                left += self.size[i]
        if alone:
            cheapest = min(alone, key=lambda i: (cost(i), self.size[i]))
            if cost(cheapest) <= sum(map(cost, chosen)):
                return (cheapest,)
        return tuple(chosen)

    # --- the steps ---------------------------------------------------------------------------------

    def keep(self) -> list[int]:
        """Put everything at home except what makes a lane too full; returns what has no place."""
        pending = [i for i, home in enumerate(self.home) if home < 0]
        for lane in sorted({home for home in self.home if home >= 0}):
            self.open(lane)
        for i, home in enumerate(self.home):
            if home >= 0:
                self.put(i, home)
        for lane in list(self.members):
            if self.room[lane] < -self.problem.headroom * self.problem.capacity_of(lane):
                evicted = self._evicted(lane)
                pending += evicted
                for i in evicted:
                    self.put(i, -1)
        return pending

    def _evicted(self, lane: int) -> list[int]:
        """The least load that must leave. A partition faster than the lane leaves if it fits on
        another lane or a new one can do clearly more; otherwise it stays alone."""
        members, capacity = self.members[lane], self.problem.capacity_of(lane)
        largest = max(members, key=lambda i: self.size[i])
        if self.size[largest] <= capacity + self._slack:
            return list(self.least_set(lane, -self.room[lane], lambda i: self.size[i])[0])
        is_better_alone = self.problem.capacity >= CLEARLY * capacity
        if not (is_better_alone or self.by_room[-1][0] >= self.size[largest]):
            return [i for i in members if i != largest]
        # The others may stay as far as they fit.
        gone, left = [largest], -self.room[lane] - self.size[largest]
        for i in sorted(members, key=lambda i: -self.size[i]):
            if left > 0 and i != largest:
                gone.append(i)
                left -= self.size[i]
        return gone

    def open_for(self, item: int) -> None:
        lane = self.home[item]
        if lane < 0 or lane in self.members or not self._suits(item, lane):
            lane = next(n for n in count() if n not in self.members and self._suits(item, n))
        self.open(lane)
        self.put(item, lane)

    def _suits(self, item: int, lane: int) -> bool:
        """A partition faster than any lane gets one that is not slower than usual."""
        return self.problem.capacity_of(lane) >= min(self.size[item], self.problem.capacity)

    def empty_lanes(self, fewest: int, price: Price) -> None:
        """Empty lanes while one can be emptied for less than it is worth."""
        while len(self.members) > fewest and self._empty_one(price(len(self.members))):
            pass

    def _empty_one(self, budget: float) -> bool:
        costs = sorted(
            (sum(self.size[i] for i in members if self.home[i] in (-1, lane)), -lane)
            for lane, members in self.members.items()
        )
        for cost, lane in ((cost, -negative) for cost, negative in costs[:_FAILURES]):
            if cost > budget:
                return False
            mark, limit = self.mark(), self.moved + budget
            ordered = sorted(self.members[lane], key=lambda i: -self.size[i])
            if all(self._leave(i, lane, limit) for i in ordered) and self.moved <= limit:
                self.close(lane)
                self._log.clear()
                return True
            self.back_to(mark)
        return False

    def _leave(self, item: int, lane: int, limit: float) -> bool:
        self.put(item, -1)
        return self.place(item, (lane,), limit - self.moved)

    def send_home(self) -> None:
        """Try every partition that moves at home again."""
        for _ in range(_ROUNDS):
            before = self.moved
            away = [i for i, home in enumerate(self.home) if home >= 0 and self.at[i] != home]
            for i in sorted(away, key=lambda i: -self.size[i]):
                if self.home[i] in self.members and self.at[i] != self.home[i]:
                    self._try_home(i)
            if self.moved >= before - self._slack:
                return

    def _try_home(self, item: int) -> None:
        home, was = self.home[item], self.at[item]
        needed = self.size[item] - self.room[home]
        if needed <= 0:
            self.put(item, home)
            return
        limit = self.moved

        def cost(i: int) -> float:
            return self.size[i] if self.home[i] == home else 0.0

        for chosen in self.least_set(home, needed, cost):
            if sum(map(cost, chosen)) >= self.size[item]:
                return
            mark = self.mark()
            for i in chosen:
                self.put(i, -1)
            if self.room[home] < self.size[item]:
                self.back_to(mark)
                continue
            self.put(item, home)
            ordered = sorted(chosen, key=lambda i: -self.size[i])
            done = all(self.place(i, (home,), max(0.0, limit - self.moved), 2) for i in ordered)
            if done and self.moved < limit:
                return
            self.back_to(mark)
        assert self.at[item] == was

    def spread(self) -> None:
        """Move those that move anyway to where most room stays."""
        away = [i for i, home in enumerate(self.home) if self.at[i] != home]
        for i in sorted(away, key=lambda i: -self.size[i]):
            room, lane = self.by_room[-1]
            left = room - self.size[i]
            if lane != self.at[i] and left >= 0 and left > self.room[self.at[i]]:
                self.put(i, lane)

    def assignment(self) -> Assignment:
        return dict(zip(self.names, self.at, strict=True))


@dataclass(frozen=True, kw_only=True)
class KeepPacking(Algorithm):
    """Our own: keep what fits, and move only what pays."""

    kind = "KEEP"
    lane_worth: Annotated[
        float | None,
        Bound(ge=0),
        Doc(
            "load that may be moved to save a lane, in lanes full of load, for every percent of "
            "lanes above the fewest; none: any load, because moves are cheap"
        ),
    ] = None

    def __call__(self, problem: Problem) -> Assignment:
        return pack(problem, math.inf if self.lane_worth is None else self.lane_worth)


def pack(problem: Problem, worth: float) -> Assignment:
    """Move load to save a lane as far as a lane is worth it."""
    fewest = fewest_lanes(problem)

    def price(lanes: int) -> float:
        if lanes <= fewest:
            return 0.0
        return worth * problem.capacity * 100 * (lanes - fewest) / fewest

    def total(lanes: Lanes) -> float:
        many = len(lanes.members)
        if math.isinf(worth):
            return lanes.moved + many * 1e9 * problem.capacity
        return lanes.moved + sum(price(n) for n in range(fewest + 1, many + 1))

    best = _kept(problem, fewest, price)
    if len(best.members) > fewest:
        other = relabelled(problem)
        if other is not None and len(other.members) < len(best.members):
            other.send_home()
            best = min(best, other, key=total)
    best.spread()
    return best.assignment()


def _kept(problem: Problem, fewest: int, price: Price) -> Lanes:
    lanes = Lanes(problem)
    pending = lanes.keep()
    for i in sorted(pending, key=lambda i: -lanes.size[i]):
        if not lanes.place(i, (), max(0.0, price(len(lanes.members) + 1)) + lanes.size[i]):
            lanes.open_for(i)
    for lane in [lane for lane, members in lanes.members.items() if not members]:
        lanes.close(lane)
    lanes.empty_lanes(fewest, price)
    lanes.send_home()
    return lanes


def relabelled(problem: Problem) -> Lanes | None:
    """A new packing by best fit, with the lane numbers that keep the most load in place.

    None if lanes differ in size and no number fits the load of one.
    """
    lanes, fresh = Lanes(problem), BestFitDecreasing()(problem)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for i, name in enumerate(lanes.names):
        groups[fresh[name]].append(i)
    loads = {group: sum(lanes.size[i] for i in items) for group, items in groups.items()}
    overlap: defaultdict[tuple[int, int], float] = defaultdict(float)
    for group, items in groups.items():
        for i in items:
            if lanes.home[i] >= 0:
                overlap[group, lanes.home[i]] += lanes.size[i]

    def suits(group: int, lane: int) -> bool:
        # The sum of the tolerances that its partitions had when they were packed.
        rounding = ROUNDING * problem.capacity * len(groups[group])
        needed = loads[group] if len(groups[group]) > 1 else min(loads[group], problem.capacity)
        return lane not in lanes.members and needed <= problem.capacity_of(lane) + rounding

    numbers: dict[int, int] = {}
    for (group, lane), _ in sorted(overlap.items(), key=lambda pair: (-pair[1], pair[0])):
        if group not in numbers and suits(group, lane):
            numbers[group] = lane
            lanes.open(lane)
    for group, items in groups.items():
        if group not in numbers:
            anywhere = range(len(groups) + len(problem.capacities) + 1)
            lane = next((lane for lane in anywhere if suits(group, lane)), -1)
            if lane < 0:
                return None
            numbers[group] = lane
            lanes.open(lane)
        for i in items:
            lanes.put(i, numbers[group])
    return lanes
