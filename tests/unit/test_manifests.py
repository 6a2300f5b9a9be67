"""The manifests are such as Kubernetes takes: checked against the schema of its API."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import kubernetes_validate
import pytest

from penstock import specs
from penstock.autoscaler.manifests import KubernetesPlace, executor_template, manifests, placed
from penstock.cli.pipeline import pipeline
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.lake.secrets import check_spark_config

PIPELINE = Pipeline(
    name="shop_events",
    bootstrap_servers="kafka:9092",
    streams=(Stream(topics=("events",), table="events"),),
    lake="/home/me/lake",
)
PLACE = KubernetesPlace(image="registry.example/penstock:1", namespace="data")


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_each_is_what_the_api_takes(version: str) -> None:
    secure = replace(PLACE, secret="kafka")
    plain_manifests = manifests(PIPELINE, PLACE)
    more = manifests(replace(PIPELINE, client_properties="/home/me/client.properties"), secure)
    for manifest in [*plain_manifests, *more, executor_template(PLACE), executor_template(secure)]:
        kubernetes_validate.validate(manifest, version, strict=True)
    broken = json.loads(json.dumps(plain_manifests[-1]))
    broken["spec"]["replicas"] = "one"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_they_belong_together() -> None:
    account, role, binding, config, service, driver = manifests(PIPELINE, PLACE)
    name = "penstock-shop-events"
    assert binding["subjects"][0]["name"] == account["metadata"]["name"] == name
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    pod = driver["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == name
    assert pod["metadata"]["labels"] == service["spec"]["selector"]
    assert {v["name"] for v in pod["spec"]["volumes"]} == {
        m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]
    }
    inside = specs.parse(config["data"]["pipeline.yaml"], Pipeline, "pipeline.yaml")
    assert inside == replace(PIPELINE, lake="/lake")  # where the volume is mounted
    assert all(m["metadata"]["namespace"] == "data" for m in (account, role, config, driver))
    command = pod["spec"]["containers"][0]["command"]
    assert "spark.kubernetes.executor.podTemplateFile=/etc/penstock/executor.yaml" in command
    assert "executor.yaml" in config["data"]
    context = pipeline.commands["run"].make_context("run", list(command[3:]))
    assert (context.params["autoscale"], len(context.params["conf"])) == ("inside", 14)
    check_spark_config(dict(setting.split("=", 1) for setting in context.params["conf"]))
    assert context.params["metrics_host"] == "0.0.0.0"


@pytest.mark.parametrize("name", ["shop.events", "orders_", "Orders", "x" * 90, "a-b", "a_b"])
def test_names_are_such_as_a_service_may_have(name: str) -> None:
    (_, _, _, _, service, _) = manifests(replace(PIPELINE, name=name), PLACE)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", service["metadata"]["name"])


def test_two_pipelines_have_two_names() -> None:
    names = ["a-b", "a_b", "a.b", "A_b", "a_b_", "x" * 80, "x" * 81]
    manifest_names = {
        manifests(replace(PIPELINE, name=n), PLACE)[0]["metadata"]["name"] for n in names
    }
    assert len(manifest_names) == len(names)


def test_what_is_secret_is_in_a_secret_and_in_no_manifest() -> None:
    secure = replace(PIPELINE, client_properties="/home/me/client.properties")
    with pytest.raises(BadInput, match="give --secret NAME"):
        manifests(secure, PLACE)
    place = replace(PLACE, secret="kafka")
    inside = placed(secure, place)
    assert inside.lane_secrets == "from-file"
    container = manifests(secure, place)[-1]["spec"]["template"]["spec"]["containers"][0]
    for mounts in (
        container["volumeMounts"],
        executor_template(place)["spec"]["containers"][0]["volumeMounts"],
    ):
        (mount,) = [m for m in mounts if m["name"] == "secret"]
        assert inside.client_properties == f"{mount['mountPath']}/client.properties"
