"""Telemetry of a fleet of cars, one JSON object per reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.domain.content import Content

_CARS = 500
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
# Any moment will do; a fixed one, so that a seed gives the same text at any time.
_BEGINS_MS = 1_700_000_000_000


class _Car:
    """One car on its way: every reading is close to the one before."""

    def __init__(self, rng: Random) -> None:
        self.vin = "WP0" + "".join(rng.choices(_LETTERS, k=14))
        self.latitude, self.longitude = rng.uniform(47, 55), rng.uniform(6, 15)
        self.speed_kmh = rng.uniform(0, 130)
        self.fuel_percent = rng.uniform(10, 100)
        self.odometer_km = rng.uniform(100, 200_000)

    def drive(self, rng: Random) -> None:
        self.speed_kmh = min(180.0, max(0.0, self.speed_kmh + rng.gauss(0, 4)))
        self.latitude += rng.gauss(0, 2e-4)
        self.longitude += rng.gauss(0, 2e-4)
        self.odometer_km += self.speed_kmh / 3600
        self.fuel_percent = max(0.0, self.fuel_percent - self.speed_kmh / 36000)


@dataclass(frozen=True, kw_only=True)
class TelemetryContent(Content):
    """Readings of cars, as JSON."""

    kind = "telemetry"

    def records(self, rng: Random) -> Iterator[bytes]:
        cars = [_Car(rng) for _ in range(_CARS)]
        now_ms = _BEGINS_MS
        while True:
            car = rng.choice(cars)
            car.drive(rng)
            now_ms += rng.randrange(5)
            engine_rpm = 800 + car.speed_kmh * 25 + rng.gauss(0, 60)
            yield (
                f'{{"vin":"{car.vin}","ts":{now_ms},"speed_kmh":{car.speed_kmh:.1f},'
                f'"rpm":{engine_rpm:.0f},"lat":{car.latitude:.6f},"lon":{car.longitude:.6f},'
                f'"fuel_pct":{car.fuel_percent:.1f},"odometer_km":{car.odometer_km:.2f},'
                f'"engine_temp_c":{rng.gauss(90, 2):.1f},"tire_kpa":'
                f"[{rng.gauss(230, 3):.0f},{rng.gauss(230, 3):.0f},"
                f"{rng.gauss(230, 3):.0f},{rng.gauss(230, 3):.0f}],"
                f'"gear":{min(6, 1 + int(car.speed_kmh / 25))},"abs":false,"door_open":false}}\n'
            ).encode()
