"""Ours: keep what fits, and move only what pays.

Everything stays where it is, unless its lane is too full: then the least load that makes it fit
goes. What must go is placed where room is left, or where a smaller one makes room for it and finds
a place of its own. A lane is emptied if that moves less than a lane is worth (`price`). If a fresh
packing of everything needs fewer lanes, it is given the present lanes' numbers and compared. Then
every partition that would move is tried at home again, by sending others elsewhere: this is what
saves most. Those that move anyway are put where most room stays, so that the next change moves
less.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from itertools import combinations, count

from penstock.autoscaler.packing.problem import (
    CLEARLY,
    ROUNDING,
    Assignment,
    Problem,
    fewest_lanes,
)
from penstock.autoscaler.packing.registry import algorithm, packs

# What may be pushed away to make room, and by that in turn: how many are tried at each step.
_CHAIN = (12, 4, 2)
# Lanes with the most room, among whose partitions these are looked for.
_WIDTH = 30
# Lanes that could not be emptied until no other is tried.
_FAILURES = 6
# Sets of partitions of a lane are tried one by one up to this many members.
_FEW = 10
_TRIES = 24
_ROUNDS = 3

Price = Callable[[int], float]


class Lanes:
    """Partitions (by number) on lanes, with what it has cost so far, and a way back."""

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

    # --- one step, and back ----------------------------------------------------------------------

    def open(self, lane: int) -> None:
        self.members[lane] = []
        self.room[lane] = self.problem.capacity_of(lane) + self._slack
        insort(self.by_room, (self.room[lane], lane))

    def close(self, lane: int) -> None:
        assert not self.members.pop(lane)
        del self.by_room[bisect_left(self.by_room, (self.room.pop(lane), lane))]

    def put(self, item: int, lane: int) -> None:
        """To this lane from wherever it is; -1 is nowhere."""
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
        """Home, or where least room is left, or in the place of a smaller one that finds another."""
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
        """The partitions in whose place it would fit, the cheapest first."""
        found = []
        for room, lane in self.by_room[-_WIDTH:]:
            if lane in avoid:
                continue
            needed = size - room
            fitting = [i for i in self.members[lane] if needed <= self.size[i] < size]
            for i in fitting:
                cost = self.size[i] if self.home[i] == lane else 0.0
                found.append((cost, self.size[i], i, lane))
        return [(i, lane) for _, _, i, lane in sorted(found)]

    def least_set(
        self, lane: int, needed: float, cost: Callable[[int], float]
    ) -> list[tuple[int, ...]]:
        """Sets of the lane's partitions with at least this much load, the cheapest first."""
        members = self.members[lane]
        if len(members) > _FEW:
            return [self._greedy_set(members, needed, cost)]
        found = []
        for many in range(1, min(3, len(members)) + 1):
            for chosen in combinations(members, many):
                load = sum(self.size[i] for i in chosen)
                if load >= needed:
                    found.append((sum(cost(i) for i in chosen), load, chosen))
        if not found:
            return [tuple(members)]
        return [chosen for _, _, chosen in sorted(found)[:_TRIES]]

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
            one = min(alone, key=lambda i: (cost(i), self.size[i]))
            if cost(one) <= sum(map(cost, chosen)):
                return (one,)
        return tuple(chosen)

    # --- the steps ---------------------------------------------------------------------------------

    def keep(self) -> list[int]:
        """Everything at home but for what makes a lane too full; says what has no place."""
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
        """The least load whose leaving makes it fit; one that is faster than the lane goes if it
        fits on another or a new one can do clearly more, and else stays alone."""
        members, capacity = self.members[lane], self.problem.capacity_of(lane)
        largest = max(members, key=lambda i: self.size[i])
        if self.size[largest] <= capacity + self._slack:
            return list(self.least_set(lane, -self.room[lane], lambda i: self.size[i])[0])
        is_better_anew = self.problem.capacity >= CLEARLY * capacity
        if not (is_better_anew or self.by_room[-1][0] >= self.size[largest]):
            return [i for i in members if i != largest]
        # The others may stay, as far as they fit.
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
        """What is faster than any lane is to have one that is no slower than usual."""
        return self.problem.capacity_of(lane) >= min(self.size[item], self.problem.capacity)

    def empty_lanes(self, fewest: int, price: Price) -> None:
        """While a lane can be emptied for less than it is worth."""
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
        """Every partition that moves tried at home again."""
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
        """Those that move anyway to where most room stays."""
        away = [i for i, home in enumerate(self.home) if self.at[i] != home]
        for i in sorted(away, key=lambda i: -self.size[i]):
            room, lane = self.by_room[-1]
            left = room - self.size[i]
            if lane != self.at[i] and left >= 0 and left > self.room[self.at[i]]:
                self.put(i, lane)

    def assignment(self) -> Assignment:
        return dict(zip(self.names, self.at, strict=True))


@packs("KEEP")
def pack(problem: Problem) -> Assignment:
    """Move load to save a lane as far as a lane is worth it."""
    fewest, worth = fewest_lanes(problem), problem.lane_worth

    def price(lanes: int) -> float:
        if lanes <= fewest:
            return 0.0
        return worth * problem.capacity * 100 * (lanes - fewest) / fewest

    def total(lanes: Lanes) -> float:
        many = len(lanes.members)
        if math.isinf(worth):
            return lanes.moved + many * 1e9 * problem.capacity
        return lanes.moved + sum(price(n) for n in range(fewest + 1, many + 1))

    found = _kept(problem, fewest, price)
    if len(found.members) > fewest:
        other = relabelled(problem)
        if other is not None and len(other.members) < len(found.members):
            other.send_home()
            found = min(found, other, key=total)
    found.spread()
    return found.assignment()


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
    """A fresh packing by best fit, whose lanes are given the numbers that keep the most load in place.

    None if lanes differ in size, and what one took has no other that can.
    """
    lanes, fresh = Lanes(problem), algorithm("BFD")(problem)
    groups: dict[int, list[int]] = {}
    for i, name in enumerate(lanes.names):
        groups.setdefault(fresh[name], []).append(i)
    loads = {group: sum(lanes.size[i] for i in items) for group, items in groups.items()}
    overlap: dict[tuple[int, int], float] = {}
    for group, items in groups.items():
        for i in items:
            if lanes.home[i] >= 0:
                key = (group, lanes.home[i])
                overlap[key] = overlap.get(key, 0.0) + lanes.size[i]

    def suits(group: int, lane: int) -> bool:
        # As much tolerance as each of them had when it was packed.
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
