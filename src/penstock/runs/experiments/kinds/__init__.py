"""The experiments of topic partitioning, one file per kind. A new one is one new file here
(`domain.plugins`), and becomes a command of `penstock experiment`."""

from penstock.runs.experiments.kinds.experiment_kind import ExperimentKind, PointJob, experiment

__all__ = ["ExperimentKind", "PointJob", "experiment"]
