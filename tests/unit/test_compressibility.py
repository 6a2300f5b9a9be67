"""How far messages compress, measured on messages like those of the workload."""

from __future__ import annotations

import pytest

from penstock.domain.arrivals import PoissonArrivals
from penstock.domain.sizes import UniformSizes
from penstock.domain.workload import Payload, Workload
from penstock.load.compressibility import compression_ratio
from penstock.load.contents.web_log import WebLogContent


def workload(**payload: object) -> Workload:
    return Workload(
        arrivals=PoissonArrivals(rate_per_s=1),
        payload=Payload(size_bytes=300, **payload),  # type: ignore[arg-type]
    )


def test_without_compression_nothing_is_compressed() -> None:
    assert compression_ratio(workload(), None, 10) == compression_ratio(workload(), "none", 1) == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_text_compresses_and_random_bytes_do_not(codec: str) -> None:
    assert compression_ratio(workload(), codec, 100) == pytest.approx(1, abs=0.1)
    log = workload(content=WebLogContent())
    single, many = (compression_ratio(log, codec, count) for count in (1, 100))
    assert many > 1.8
    assert many > single


def test_sizes_may_vary() -> None:
    log = workload(content=WebLogContent(), sizes=UniformSizes(min_bytes=100, max_bytes=900))
    assert compression_ratio(log, "zstd", 50) > 2
