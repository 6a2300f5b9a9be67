"""The weighted KPI and timely throughput, on worked numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import report_runs

from penstock.domain.cluster import ClientQuotas, ClusterSpec
from penstock.domain.kpi import bandwidth_mb_per_s, gamma, timely_throughput
from penstock.domain.objective import KpiWeights, Objective

GAME = KpiWeights(bandwidth=0.2, throughput=0.4, no_loss=0.2, no_duplication=0.2)


def test_gamma_weighs_its_four_terms() -> None:
    shares = {"bandwidth_share": 0.5, "rate_share": 0.8, "lost_share": 0.1}
    kpi = gamma(KpiWeights(), **shares, duplicated_share=0.02)
    assert kpi == pytest.approx(0.15 + 0.24 + 0.27 + 0.098)
    kpi = gamma(GAME, **shares, duplicated_share=0.02)
    assert kpi == pytest.approx(0.1 + 0.32 + 0.18 + 0.196)


def test_gamma_of_a_perfect_run_is_1_and_of_a_useless_one_0() -> None:
    for bandwidth_share in (1.0, None):
        perfect = gamma(
            GAME,
            bandwidth_share=bandwidth_share,
            rate_share=1,
            lost_share=0,
            duplicated_share=0,
        )
        assert perfect == pytest.approx(1)
    useless = gamma(GAME, bandwidth_share=0, rate_share=0, lost_share=1, duplicated_share=1)
    assert useless == 0


def test_without_a_bandwidth_the_other_terms_share_its_weight() -> None:
    kpi = gamma(GAME, bandwidth_share=None, rate_share=0.5, lost_share=0, duplicated_share=0)
    assert kpi == pytest.approx((0.2 + 0.2 + 0.2) / 0.8)
    only_bandwidth = KpiWeights(bandwidth=1, throughput=0, no_loss=0, no_duplication=0)
    assert (
        gamma(only_bandwidth, bandwidth_share=None, rate_share=1, lost_share=0, duplicated_share=0)
        == 0
    )


def test_the_bandwidth_is_the_objectives_or_the_quota_of_all_brokers() -> None:
    plain = report_runs.spec()
    assert bandwidth_mb_per_s(plain) is None
    quotas = ClientQuotas(producer_mb_per_s=20, consumer_mb_per_s=40)
    limited = replace(plain, cluster=ClusterSpec(brokers=3, quotas=quotas))
    assert bandwidth_mb_per_s(limited) == 60
    assert bandwidth_mb_per_s(replace(limited, objective=Objective())) == 60
    assert bandwidth_mb_per_s(replace(limited, objective=Objective(bandwidth_mb_per_s=7))) == 7


def test_timely_throughput_leaves_out_what_is_late_and_what_is_lost() -> None:
    assert timely_throughput(50.0, 0.2, 0.1) == pytest.approx(36)
    assert timely_throughput(50.0, 0, 0) == 50
