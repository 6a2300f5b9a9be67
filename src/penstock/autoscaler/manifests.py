"""Kubernetes manifests of a pipeline: driver, its rights, the template of its executors. Pure.

The driver asks for executors and gives them back as the plan says (S2, 4.4.7.2); so it may make and
remove pods in its namespace, and nothing else. Lake and checkpoint lie on a volume that all mount,
and what is secret in a client.properties, with the certificates that it names, in a Secret.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Annotated, Any

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.value import Bound, Doc, Value

Manifest = dict[str, Any]
_CONFIG, _SECRET, _LAKE = "/etc/penstock", "/etc/penstock-secret", "/lake"
_DRIVER_PORT, _BLOCK_PORT, _METRICS_PORT = 7078, 7079, 9400
_USER = 185  # of Spark's own images
# 63 in all, of which 16 are ours.
_NAME_LENGTH = 47
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# What the driver may do. First with executors, and the configuration that Spark gives them; then
# with what Spark removes when it ends, as far as it has created it.
_RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "configmaps"],
        "verbs": [
            "create",
            "get",
            "list",
            "watch",
            "delete",
            "deletecollection",
            "patch",
            "update",
        ],
    },
    {
        "apiGroups": [""],
        "resources": ["services", "persistentvolumeclaims"],
        "verbs": ["get", "list", "deletecollection"],
    },
]
_SECURITY = {"runAsNonRoot": True, "runAsUser": _USER, "fsGroup": _USER}
# Share of a driver's or an executor's memory for Java's heap: lanes, Parquet and Delta use Python's.
_HEAP = 0.4


@dataclass(frozen=True, kw_only=True)
class KubernetesPlace(Value):
    """Where the pipeline runs."""

    image: str
    namespace: str = "default"
    claim: Annotated[
        str, Doc("existing volume claim that many pods can mount at once (ReadWriteMany)")
    ] = "lake"
    secret: Annotated[str | None, Doc("existing Secret with a client.properties in it")] = None
    driver_memory_mb: Annotated[int, Bound(ge=512)] = 3072
    executor_memory_mb: Annotated[int, Bound(ge=512)] = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.image.strip()), "image", "must name a container image")
        for field in ("namespace", "claim", "secret"):
            name = getattr(self, field)
            rule = "must be a Kubernetes name: lower-case letters, digits and '-'"
            self.require(name is None or bool(_KUBERNETES_NAME.fullmatch(name)), field, rule)


def manifests(pipeline: Pipeline, place: KubernetesPlace) -> list[Manifest]:
    """The manifests, in the order in which to apply them. `pipeline` must not need other files."""
    name, namespace = _name(pipeline.name), place.namespace
    labels = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": name}
    files = {
        "pipeline.yaml": specs.dump_yaml(placed(pipeline, place)),
        "executor.yaml": specs.dump_yaml(executor_template(place)),
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}

    def manifest(version: str, kind: str, **content: Any) -> Manifest:
        meta = {"name": name, "namespace": namespace, "labels": labels}
        return {"apiVersion": version, "kind": kind, "metadata": meta, **content}

    return [
        manifest("v1", "ServiceAccount"),
        manifest("rbac.authorization.k8s.io/v1", "Role", rules=_RULES),
        manifest("rbac.authorization.k8s.io/v1", "RoleBinding", subjects=[subject], roleRef=role),
        manifest("v1", "ConfigMap", data=files),
        manifest("v1", "Service", spec=_service(labels)),
        manifest("apps/v1", "Deployment", spec=_driver(name, labels, place)),
    ]


def _name(pipeline: str) -> str:
    """A valid Kubernetes name; different names of pipelines give different ones."""
    plain = re.sub(r"[^a-z0-9-]", "-", pipeline.lower()).strip("-")[:_NAME_LENGTH].strip("-")
    if plain.replace("-", "_") == pipeline:
        return f"penstock-{plain}"
    return f"penstock-{plain}-{hashlib.sha256(pipeline.encode()).hexdigest()[:6]}"


def placed(pipeline: Pipeline, place: KubernetesPlace) -> Pipeline:
    """The pipeline as it runs in a container: lake on the volume, secrets in the Secret."""
    properties = None
    secrets = pipeline.lane_secrets
    if pipeline.client_properties is not None:
        if place.secret is None:
            raise BadInput(
                f"client_properties: {pipeline.client_properties} is not copied into the manifests, "
                "because it may hold secrets",
                "put it into a Secret (kubectl create secret generic NAME --from-file="
                "client.properties) and give --secret NAME",
            )
        properties = f"{_SECRET}/client.properties"
        secrets = "from-file"  # every pod mounts it, so no secret is sent from pod to pod
    return replace(
        pipeline, lake=_LAKE, checkpoint=None, client_properties=properties, lane_secrets=secrets
    )


def executor_template(place: KubernetesPlace) -> Manifest:
    """The template of every executor's pod; Spark adds image, resources and command."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "securityContext": _SECURITY,
            "containers": [
                {"name": "executor", "image": place.image, "volumeMounts": _mounts(place)}
            ],
            "volumes": _volumes(place),
        },
    }


def _mounts(place: KubernetesPlace) -> list[Manifest]:
    """For driver and executors: every lane reads the certificates."""
    lake: Manifest = {"name": "lake", "mountPath": _LAKE}
    secret: Manifest = {"name": "secret", "mountPath": _SECRET, "readOnly": True}
    return [lake, secret] if place.secret else [lake]


def _volumes(place: KubernetesPlace) -> list[Manifest]:
    lake: Manifest = {"name": "lake", "persistentVolumeClaim": {"claimName": place.claim}}
    secret: Manifest = {"name": "secret", "secret": {"secretName": place.secret}}
    return [lake, secret] if place.secret else [lake]


def _service(labels: dict[str, str]) -> Manifest:
    """How executors find their driver."""
    ports = {"driver": _DRIVER_PORT, "blocks": _BLOCK_PORT, "metrics": _METRICS_PORT}
    return {
        "clusterIP": "None",
        "selector": labels,
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }


def _heap_mb(memory_mb: int) -> int:
    return round(_HEAP * memory_mb)


def _driver(name: str, labels: dict[str, str], place: KubernetesPlace) -> Manifest:
    executor_heap_mb = _heap_mb(place.executor_memory_mb)
    conf = {
        "spark.kubernetes.namespace": place.namespace,
        "spark.kubernetes.container.image": place.image,
        "spark.kubernetes.authenticate.driver.serviceAccountName": name,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.podTemplateFile": f"{_CONFIG}/executor.yaml",
        "spark.executor.instances": "1",
        "spark.executor.cores": "1",
        "spark.driver.memory": f"{_heap_mb(place.driver_memory_mb)}m",
        "spark.executor.memory": f"{executor_heap_mb}m",
        "spark.executor.memoryOverhead": f"{place.executor_memory_mb - executor_heap_mb}m",
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
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "metrics", "containerPort": _METRICS_PORT}],
        "resources": {"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}},
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
            *_mounts(place),
        ],
    }
    pod = {
        "serviceAccountName": name,
        # A graceful stop finishes the micro-batch.
        "terminationGracePeriodSeconds": 120,
        "securityContext": _SECURITY,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": name}}, *_volumes(place)],
    }
    return {
        "replicas": 1,
        # The old driver must end first: a second one on the same checkpoint would be refused.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
