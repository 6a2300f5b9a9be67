"""The manifests are such as Kubernetes takes: checked against the schema of its API."""

from __future__ import annotations

import json

import kubernetes_validate
import pytest

from penstock import specs
from penstock.autoscaler.manifests import Place, executor_template, manifests
from penstock.cli.pipeline import pipeline
from penstock.domain.lake.pipeline import Pipeline, Stream

PIPELINE = Pipeline(
    name="shop_events",
    bootstrap_servers="kafka:9092",
    streams=(Stream(topics=("events",), table="events"),),
    lake="/lake",
)
PLACE = Place(image="registry.example/penstock:1", namespace="data")


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_each_is_what_the_api_takes(version: str) -> None:
    made = manifests(PIPELINE, specs.dump_yaml(PIPELINE), PLACE)
    for manifest in [*made, executor_template(PLACE)]:
        kubernetes_validate.validate(manifest, version, strict=True)
    broken = json.loads(json.dumps(made[-1]))
    broken["spec"]["replicas"] = "one"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_they_belong_together() -> None:
    account, role, binding, config, service, driver = manifests(PIPELINE, "name: shop", PLACE)
    name = "penstock-shop-events"
    assert binding["subjects"][0]["name"] == account["metadata"]["name"] == name
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    pod = driver["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == name
    assert pod["metadata"]["labels"] == service["spec"]["selector"]
    assert {v["name"] for v in pod["spec"]["volumes"]} == {
        m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]
    }
    assert config["data"]["pipeline.yaml"] == "name: shop"
    assert all(m["metadata"]["namespace"] == "data" for m in (account, role, config, driver))
    command = pod["spec"]["containers"][0]["command"]
    assert "spark.kubernetes.executor.podTemplateFile=/etc/penstock/executor.yaml" in command
    assert "executor.yaml" in config["data"]
    asked = pipeline.commands["run"].make_context("run", list(command[3:]))
    assert (asked.params["autoscale"], len(asked.params["conf"])) == ("inside", 12)
