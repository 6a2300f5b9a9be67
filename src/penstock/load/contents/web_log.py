"""Lines of a web server's access log, in the combined format of Apache and nginx."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from penstock.domain.content import Content

_PATHS = (
    ("/", 20),
    ("/index.html", 6),
    ("/login", 6),
    ("/cart", 8),
    ("/search?q={word}&page={small}", 12),
    ("/product/{large}", 24),
    ("/category/{word}/{small}", 10),
    ("/api/v2/items/{large}?expand=price", 14),
    ("/static/css/main.{large}.css", 8),
    ("/static/js/app.{large}.js", 8),
    ("/images/{large}.jpg", 16),
)
_WORDS = ("shoes", "garden", "lamp", "kettle", "books", "bicycle", "jacket", "phone", "chair")
_STATUS = (("200", 90), ("301", 2), ("304", 10), ("404", 4), ("500", 1), ("503", 1))
_METHODS = (("GET", 90), ("POST", 9), ("HEAD", 1))
_REFERERS = (
    ("-", 45),
    ("https://shop.example.com/", 25),
    ("https://shop.example.com/search?q={word}", 15),
    ("https://www.search.example/", 15),
)
_AGENTS = (
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
        "Chrome/126.0.0.0 Safari/537.36",
        50,
    ),
    (
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 "
        "(KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
        30,
    ),
    ("Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0", 12),
    ("Mozilla/5.0 (compatible; ExampleBot/2.1; +https://bot.example/about)", 8),
)
# Any date will do; a fixed one, so that a seed gives the same text at any time.
_BEGINS_S = 1_700_000_000
_REQUESTS_PER_S = 200


@dataclass(frozen=True, kw_only=True)
class WebLogContent(Content):
    """Lines of a web server's access log."""

    kind = "web-log"

    def records(self, rng: Random) -> Iterator[bytes]:
        visitors = [".".join(str(rng.randrange(1, 255)) for _ in range(4)) for _ in range(2000)]
        paths, methods, statuses, referers, agents = (
            _draws(rng, table) for table in (_PATHS, _METHODS, _STATUS, _REFERERS, _AGENTS)
        )
        now_s = float(_BEGINS_S)
        while True:
            now_s += rng.expovariate(_REQUESTS_PER_S)
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now_s))
            blanks = {
                "word": rng.choice(_WORDS),
                "small": rng.randrange(1, 20),
                "large": rng.randrange(10_000, 1_000_000),
            }
            path, referer = (next(draws).format(**blanks) for draws in (paths, referers))
            yield (
                f"{rng.choice(visitors)} - - [{stamp}] "
                f'"{next(methods)} {path} HTTP/1.1" {next(statuses)} '
                f'{int(rng.lognormvariate(8.5, 1.2))} "{referer}" "{next(agents)}"\n'
            ).encode()


def _draws(rng: Random, table: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Entries of a table by their weight."""
    entries, weights = zip(*table, strict=True)
    while True:
        yield from rng.choices(entries, weights, k=500)
