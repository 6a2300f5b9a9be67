"""Public API: Kubernetes manifests of a pipeline."""

from __future__ import annotations

from penstock.api.landing import AnyPipeline, load
from penstock.autoscaler import manifests as rendering
from penstock.autoscaler.manifests import KubernetesPlace, Manifest
from penstock.domain.value import fitting


def manifests(pipeline: AnyPipeline, place: KubernetesPlace) -> list[Manifest]:
    """Driver, its rights and the template of its executors, in the order in which to apply them."""
    fitting("place", place, KubernetesPlace)
    return rendering.manifests(load(pipeline), place)
