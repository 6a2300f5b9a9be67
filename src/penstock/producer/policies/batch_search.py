"""What policies that choose a batch size share."""

from __future__ import annotations

from dataclasses import replace

from penstock.producer.situation import Configuration, Outlook, Situation


def by_batch(situation: Situation, most_batch: int) -> dict[int, tuple[Configuration, Outlook]]:
    """B_S → the configuration with that batch size, and what it would lead to."""
    found = {}
    for batch in range(1, most_batch + 1):
        configuration = replace(situation.now, batch_messages=batch)
        found[batch] = (configuration, situation.predict(configuration))
    return found
