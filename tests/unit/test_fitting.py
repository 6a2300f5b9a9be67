"""Values that are made in Python: their types are checked, and a refusal is a `PenstockError`."""

# mypy: disable-error-code="arg-type,dict-item"

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import penstock
from penstock.domain.lake.report import LandedRange
from penstock.domain.value import Bound, FieldError, Value


@dataclass(frozen=True, kw_only=True)
class Word(Value):
    text: str = ""
    whole: Annotated[int, Bound(ge=0)] = 0
    number: float = 0.0
    is_on: bool = False
    maybe: int | None = None
    choice: Literal["a", "b", 1] = "a"
    names: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    entries: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    scalar: str | int | float | bool = 0
    either: int | str = 0
    inner: penstock.TopicSpec | None = None
    anything: Any = None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("text", 3, "text: 3 must be text"),
        ("whole", "3", "whole: '3' must be a whole number"),
        ("whole", 3.0, "whole: 3.0 must be a whole number"),
        ("whole", True, "whole: True must be a whole number"),
        ("whole", -1, "whole: -1 must be 0 or more"),
        ("number", "3", "number: '3' must be a number"),
        ("number", False, "number: False must be a number"),
        ("is_on", 1, "is_on: 1 must be True or False"),
        ("maybe", "3", "maybe: '3' must be a whole number"),
        ("choice", "c", "choice: 'c' must be one of 'a', 'b', 1"),
        ("choice", True, "choice: True must be one of 'a', 'b', 1"),
        ("names", "orders", "names: 'orders' must be a list or a tuple: write ['orders']"),
        ("names", {"a"}, "names: a value of type set must be a list or a tuple"),
        ("names", ("a", 1), "names.1: 1 must be text"),
        ("pairs", [(1, 2), (3, "4")], "pairs.1: '4' must be a whole number"),
        ("pairs", [(1, 2), (3,)], "pairs.1: a value of type tuple must be 2 items"),
        ("entries", [("a", 1)], "entries: a value of type list must be a mapping"),
        ("entries", {1: ()}, "entries.1: 1 must be text"),
        ("entries", {"a": [1, "x"]}, "entries.a.1: a value of type str must be a whole number"),
        ("scalar", None, "scalar: None must be text or a number or True or False"),
        ("either", 1.5, "either: 1.5 must be a whole number or text"),
        ("inner", "orders", "inner: 'orders' must be a TopicSpec"),
    ],
)
def test_what_does_not_fit_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(penstock.PenstockError) as refused:
        Word(**{field: value})
    assert str(refused.value) == message == refused.value.message
    assert isinstance(refused.value, penstock.BadInput) and isinstance(refused.value, ValueError)
    assert refused.value.exit_code == 2


def test_what_fits() -> None:
    inner = penstock.TopicSpec(name="t")
    word = Word(
        number=3,
        whole=np.int64(3),
        is_on=np.bool_(True),
        names=["a", "b"],
        pairs=[[1, 2]],
        entries={"a": [1, 2]},
        scalar=True,
        either="leader",
        inner=inner,
        anything=object(),
    )
    # Lists become tuples, so that a value stays one.
    assert (word.names, word.pairs, word.entries) == (("a", "b"), ((1, 2),), {"a": (1, 2)})
    assert word.inner is inner and word.whole == 3
    assert Word(names=range(0)).names == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: penstock.ClusterSpec(brokers="3"), "brokers: '3' must be a whole number"),
        (lambda: penstock.LinkCondition(delay=5), "delay: 5 must be a kind of Delay"),
        (lambda: penstock.Stream(topics="orders", table="t"), r"write \['orders'\]"),
        (lambda: penstock.Kill(broker=1, at_s="5"), "at_s: '5' must be a number"),
        (lambda: penstock.ProducerSettings(acks=2), "acks: 2 must be one of '0', '1', 'all'"),
        (
            lambda: penstock.Workload(arrivals="poisson", duration_s=1),
            "arrivals: 'poisson' must be a kind of Arrivals",
        ),
        (
            lambda: penstock.Scenario(
                name="s",
                topic="orders",
                workload=penstock.Workload(
                    arrivals=penstock.ConstantArrivals(rate_per_s=1), duration_s=1
                ),
            ),
            "topic: 'orders' must be a TopicSpec",
        ),
    ],
)
def test_words_of_the_public_api(make: Any, message: str) -> None:
    with pytest.raises(penstock.BadInput, match=message):
        make()


def test_other_spellings_mean_the_same_in_python() -> None:
    settings: Any = penstock.ProducerSettings
    assert settings(acks=-1) == settings(acks="all")
    assert settings(acks=1).acks == "1"


def test_secrets_are_not_shown() -> None:
    with pytest.raises(FieldError) as refused:
        penstock.ProducerSettings(other={"sasl.password": b"hunter2"})
    assert "hunter2" not in str(refused.value)


def test_values_that_are_many_may_go_unchecked() -> None:
    assert not LandedRange.checks_types


def test_numbers_of_numpy_become_plain_ones_and_are_checked() -> None:
    cluster = penstock.ClusterSpec(brokers=np.int64(2))
    assert type(cluster.brokers) is int
    assert "brokers: 2" in penstock.dump_yaml(cluster)
    idempotent: Any = np.True_
    assert penstock.ProducerSettings(enable_idempotence=idempotent).enable_idempotence is True
    for wrong in (np.int64(0), np.float32(-1), np.float32("nan"), Fraction(-1, 3)):
        rate: Any = wrong
        with pytest.raises(FieldError, match="rate_per_s"):
            penstock.ConstantArrivals(rate_per_s=rate)


@pytest.mark.parametrize("content", ["telemetry", penstock.TelemetryContent])
def test_the_name_of_a_kind_is_not_one(content: Any) -> None:
    with pytest.raises(FieldError, match=r"must be a kind of Content: write TelemetryContent\(…\)"):
        penstock.Payload(content=content)


def test_a_kind_that_is_not_installed_is_not_written_as_its_parent() -> None:
    """Read back, it would be another workload."""

    class Mine(penstock.SalesContent):
        pass

    with pytest.raises(penstock.BadInput, match="Mine is not the installed plug-in 'sales'"):
        penstock.dump_yaml(penstock.Payload(content=Mine()))


def test_a_class_with_the_name_of_an_own_kind_does_not_hide_it() -> None:
    code = (
        "import penstock\n"
        "class Mine(penstock.RandomContent):\n"
        "    kind = 'random'\n"
        "print(type(penstock.Payload().content).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "RandomContent"
