"""A pipeline on Kubernetes, as manifests: driver, what it may do, its executors' template. Pure.

The driver asks for executors and gives them back as the plan says (S2, 4.4.7.2); so it may make and
remove pods in its namespace, and nothing else. Lake and checkpoint lie on a volume that all mount,
and what is secret in a client.properties, with the certificates that it names, in a Secret.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline

Manifest = dict[str, Any]
_CONFIG, _SECRET, _LAKE = "/etc/penstock", "/etc/penstock-secret", "/lake"
_DRIVER_PORT, _BLOCK_PORT, _METRICS_PORT = 7078, 7079, 9400
_USER = 185  # of Spark's own images
# 63 in all, of which 16 are ours.
_NAME_LENGTH = 47
# Of a driver's or an executor's memory, for Java's heap: lanes, Parquet and Delta are Python's.
_HEAP = 0.4


@dataclass(frozen=True)
class Place:
    """Where it is to run."""

    image: str
    namespace: str = "default"
    # An existing claim that can be mounted by many at once.
    claim: str = "lake"
    # An existing Secret with a client.properties in it.
    secret: str | None = None
    driver_memory_mb: int = 3072
    executor_memory_mb: int = 2048


def manifests(pipeline: Pipeline, place: Place) -> list[Manifest]:
    """In the order in which they are applied. `pipeline` stands by itself: no other files."""
    name = _name(pipeline.name)
    labels = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": name}
    return [
        _account(name, labels, place),
        _role(name, labels, place),
        _binding(name, labels, place),
        _config(name, labels, place, placed(pipeline, place)),
        _service(name, labels, place),
        _driver(name, labels, place),
    ]


def _name(pipeline: str) -> str:
    """What Kubernetes takes for a name; of two that it would take for the same, each its own."""
    plain = re.sub(r"[^a-z0-9-]", "-", pipeline.lower()).strip("-")[:_NAME_LENGTH].strip("-")
    if plain.replace("-", "_") == pipeline:
        return f"penstock-{plain}"
    return f"penstock-{plain}-{hashlib.sha256(pipeline.encode()).hexdigest()[:6]}"


def placed(pipeline: Pipeline, place: Place) -> Pipeline:
    """As it is in a container: what it keeps is on the volume, what is secret in the Secret."""
    properties = None
    if pipeline.client_properties is not None:
        if place.secret is None:
            raise BadInput(
                "client_properties: its content is not printed",
                "put it into a Secret (kubectl create secret generic NAME --from-file="
                "client.properties) and give --secret NAME",
            )
        properties = f"{_SECRET}/client.properties"
    return replace(pipeline, lake=_LAKE, checkpoint=None, client_properties=properties)


def _meta(name: str, labels: dict[str, str], place: Place) -> dict[str, Any]:
    return {"name": name, "namespace": place.namespace, "labels": labels}


def _account(name: str, labels: dict[str, str], place: Place) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(name, labels, place)}


def _role(name: str, labels: dict[str, str], place: Place) -> Manifest:
    every = ["create", "get", "list", "watch", "delete", "deletecollection", "patch", "update"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _meta(name, labels, place),
        "rules": [
            # Executors, and the configuration that Spark gives them.
            {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": every},
            # Spark removes what it may have made of these when it ends.
            {
                "apiGroups": [""],
                "resources": ["services", "persistentvolumeclaims"],
                "verbs": ["get", "list", "deletecollection"],
            },
        ],
    }


def _binding(name: str, labels: dict[str, str], place: Place) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _meta(name, labels, place),
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": place.namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
    }


def _config(name: str, labels: dict[str, str], place: Place, pipeline: Pipeline) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(name, labels, place),
        "data": {
            "pipeline.yaml": specs.dump_yaml(pipeline),
            "executor.yaml": specs.dump_yaml(executor_template(place)),
        },
    }


def executor_template(place: Place) -> Manifest:
    """What every executor's pod is made from; Spark adds image, resources and command."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "fsGroup": _USER},
            "containers": [
                {
                    "name": "executor",
                    "image": place.image,
                    "volumeMounts": _mounts(place),
                }
            ],
            "volumes": _volumes(place),
        },
    }


def _mounts(place: Place) -> list[Manifest]:
    """Of driver and executors: certificates are read by every lane."""
    lake: Manifest = {"name": "lake", "mountPath": _LAKE}
    secret: Manifest = {"name": "secret", "mountPath": _SECRET, "readOnly": True}
    return [lake, secret] if place.secret else [lake]


def _volumes(place: Place) -> list[Manifest]:
    lake: Manifest = {"name": "lake", "persistentVolumeClaim": {"claimName": place.claim}}
    secret: Manifest = {"name": "secret", "secret": {"secretName": place.secret}}
    return [lake, secret] if place.secret else [lake]


def _service(name: str, labels: dict[str, str], place: Place) -> Manifest:
    """How executors find their driver."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(name, labels, place),
        "spec": {
            "clusterIP": "None",
            "selector": labels,
            "ports": [
                {"name": "driver", "port": _DRIVER_PORT},
                {"name": "blocks", "port": _BLOCK_PORT},
                {"name": "metrics", "port": _METRICS_PORT},
            ],
        },
    }


def _heap_mb(memory_mb: int) -> int:
    return round(_HEAP * memory_mb)


def _rest_mb(memory_mb: int) -> int:
    return memory_mb - _heap_mb(memory_mb)


def _driver(name: str, labels: dict[str, str], place: Place) -> Manifest:
    conf = {
        "spark.kubernetes.namespace": place.namespace,
        "spark.kubernetes.container.image": place.image,
        "spark.kubernetes.authenticate.driver.serviceAccountName": name,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.podTemplateFile": f"{_CONFIG}/executor.yaml",
        "spark.executor.instances": "1",
        "spark.executor.cores": "1",
        "spark.driver.memory": f"{_heap_mb(place.driver_memory_mb)}m",
        "spark.executor.memory": f"{_heap_mb(place.executor_memory_mb)}m",
        "spark.executor.memoryOverhead": f"{_rest_mb(place.executor_memory_mb)}m",
        "spark.driver.host": f"{name}.{place.namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(_DRIVER_PORT),
        "spark.driver.blockManager.port": str(_BLOCK_PORT),
    }
    command = ["penstock", "pipeline", "run", f"{_CONFIG}/pipeline.yaml"]
    command += ["--autoscale", "inside"]
    command += ["--master", "k8s://https://kubernetes.default.svc"]
    command += ["--metrics-port", str(_METRICS_PORT), "--metrics-host", "0.0.0.0"]
    for setting, value in conf.items():
        command += ["--conf", f"{setting}={value}"]
    memory = f"{place.driver_memory_mb}Mi"
    container = {
        "name": "driver",
        "image": place.image,
        "command": command,
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": _METRICS_PORT}],
        "resources": {"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}},
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
            *_mounts(place),
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(name, labels, place),
        "spec": {
            "replicas": 1,
            # Of two on one checkpoint the second would be refused: the old one must end first.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": name,
                    # A graceful stop finishes the micro-batch.
                    "terminationGracePeriodSeconds": 120,
                    "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "fsGroup": _USER},
                    "containers": [container],
                    "volumes": [
                        {"name": "config", "configMap": {"name": name}},
                        *_volumes(place),
                    ],
                },
            },
        },
    }
