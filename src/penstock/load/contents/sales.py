"""Records of points of sale: one line per article sold, fields between semicolons."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.domain.content import Content

_STORES, _TILLS, _ARTICLES = 120, 8, 3000
_PAYMENTS = ("CARD", "CARD", "CARD", "CASH", "CASH", "VOUCHER")
_KINDS = ("MILK", "BREAD", "COFFEE", "APPLES", "PASTA", "SOAP", "CHEESE", "JUICE", "RICE", "TEA")
_SIZES = ("250G", "500G", "1KG", "1L", "6PK")
# Any date will do; a fixed one, so that a seed gives the same text at any time.
_BEGINS_S = 1_700_000_000
_SALES_PER_S = 40


@dataclass(frozen=True, kw_only=True)
class SalesContent(Content):
    """Lines of receipts of shops."""

    kind = "sales"

    def records(self, rng: Random) -> Iterator[bytes]:
        articles = [
            (
                f"{rng.randrange(10**12, 10**13)}",
                f"{rng.choice(_KINDS)} {rng.choice(_SIZES)}",
                rng.lognormvariate(1.1, 0.7),
            )
            for _ in range(_ARTICLES)
        ]
        now_s = float(_BEGINS_S)
        receipt = rng.randrange(10**6)
        while True:
            receipt += 1
            now_s += rng.expovariate(_SALES_PER_S)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
            head = f"{stamp};S{rng.randrange(_STORES):04d};T{rng.randrange(_TILLS)};R{receipt:09d}"
            payment = rng.choice(_PAYMENTS)
            for line in range(1, 2 + int(rng.expovariate(0.4))):
                # A few articles make most of the sales.
                number, name, price = articles[int(_ARTICLES * rng.random() ** 3)]
                quantity = 1 + int(rng.expovariate(1.5))
                yield (
                    f"{head};{line};{number};{name};{quantity};{price:.2f};"
                    f"{quantity * price:.2f};EUR;{payment}\n"
                ).encode()
