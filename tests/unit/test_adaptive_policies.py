"""Adaptive policies: pure functions from a situation to a choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.domain import plugins
from penstock.domain.objective import KpiWeights
from penstock.producer.policies import AdaptivePolicy
from penstock.producer.policies.mean_latency import MeanLatencyBatching
from penstock.producer.policies.reactive_batching import ReactiveBatching
from penstock.producer.policies.stepwise import StepwiseTuning
from penstock.producer.situation import Configuration, Outlook, Situation

LOSSY = KpiWeights(bandwidth=0, throughput=0.1, no_loss=0.8, no_duplication=0.1)


def lossy(configuration: Configuration) -> Outlook:
    """Like S0's Fig. 5.10: with acks=1, two messages in a batch save most."""
    lost = {"0": 0.9, "1": 0.8 / configuration.batch_messages**2, "all": 0.85}[configuration.acks]
    return Outlook(lost_share=lost, rate_share=1 / configuration.batch_messages**0.1)


def batched(configuration: Configuration) -> Outlook:
    """Like S0's Figs. 6.13 to 6.15: latency and throughput rise with the batch."""
    batch = configuration.batch_messages
    return Outlook(
        mean_latency_ms=70 * batch,
        throughput=17.0 * batch**0.75,
        violation_share=min(1.0, max(0.0, (batch - 3.5) / 4)),
    )


def situation(predict: Any, **more: Any) -> Situation:
    return Situation(now=Configuration(acks="0"), predict=predict, weights=LOSSY, **more)


def test_stepwise_moves_acks_first_and_then_the_batch() -> None:
    choice = StepwiseTuning().decide(situation(lossy, target_gamma=0.9))
    assert choice.configuration == Configuration(acks="1", batch_messages=3)
    assert choice.is_enough
    assert "γ rises from" in choice.sentence and "batch.num.messages 3" in choice.sentence


def test_stepwise_ends_where_the_documents_algorithm_would_not() -> None:
    asked = []

    def counted(configuration: Configuration) -> Outlook:
        asked.append(configuration)
        return lossy(configuration)

    choice = StepwiseTuning(most_steps=4).decide(situation(counted, target_gamma=2.0))
    assert not choice.is_enough
    assert choice.configuration.batch_messages <= 5
    assert len(asked) < 30


def test_stepwise_stays_if_it_is_enough_or_nothing_helps() -> None:
    calm = situation(lambda _: Outlook(), target_gamma=0.9)
    assert StepwiseTuning().decide(calm).configuration == calm.now
    hopeless = StepwiseTuning().decide(
        situation(lambda _: Outlook(lost_share=1), target_gamma=0.99)
    )
    assert hopeless.configuration.acks == "0" and "no step raises it" in hopeless.sentence


def test_stepwise_polls_less_often_only_where_it_can() -> None:
    def slower_is_better(configuration: Configuration) -> Outlook:
        return Outlook(lost_share=1 / (1 + configuration.polling_ms))

    push, pull = (
        StepwiseTuning()
        .decide(situation(slower_is_better, target_gamma=0.85, can_poll=can))
        .configuration
        for can in (False, True)
    )
    assert push.polling_ms == 0
    assert pull.polling_ms == 10


def test_reactive_batching_looks_at_what_is_late_and_the_mean_rule_does_not() -> None:
    here = situation(batched, latency_ms=350)
    mean, reactive = MeanLatencyBatching().decide(here), ReactiveBatching().decide(here)
    assert mean.configuration.batch_messages == 5
    assert reactive.configuration.batch_messages == 4
    timely = [batched(one.configuration).timely_throughput for one in (mean, reactive)]
    assert timely[1] > 1.05 * timely[0]
    assert "late" in reactive.sentence


def test_the_mean_rule_says_if_no_batch_is_fast_enough() -> None:
    choice = MeanLatencyBatching().decide(situation(batched, latency_ms=20))
    assert choice.configuration.batch_messages == 1
    assert not choice.is_enough


@pytest.mark.parametrize("kind", plugins.names("penstock.adaptive_policies"))
def test_every_policy_is_a_plug_in_and_keeps_what_it_does_not_decide(kind: str) -> None:
    policy: Any = plugins.get("penstock.adaptive_policies", kind)()
    assert isinstance(policy, AdaptivePolicy)
    here = situation(batched, latency_ms=100)
    now = replace(here.now, linger_ms=77)
    choice = policy.decide(replace(here, now=now))
    assert choice.configuration.linger_ms == 77
    assert choice.sentence
