"""Penstock finds, proves and keeps the right configuration of a Kafka data pipeline.

The verbs of the command line, and the values that they take; docs/api.md has examples. They are
loaded when they are used (`lazy` reads the imports below), so `import penstock` costs nothing.
"""

from typing import TYPE_CHECKING

from penstock import lazy
from penstock.version import __version__ as __version__

if TYPE_CHECKING:
    from penstock.api.autoscaling import autoscale as autoscale
    from penstock.api.calibration import Calibrated as Calibrated
    from penstock.api.calibration import calibrate as calibrate
    from penstock.api.capacity import capacity as capacity
    from penstock.api.evidence import Evidence as Evidence
    from penstock.api.experiments import ExperimentResult as ExperimentResult
    from penstock.api.experiments import experiment as experiment
    from penstock.api.files import file_kinds as file_kinds
    from penstock.api.files import read as read
    from penstock.api.files import schema as schema
    from penstock.api.kubernetes import manifests as manifests
    from penstock.api.lake import audit as audit
    from penstock.api.lake import compact as compact
    from penstock.api.lake import reland as reland
    from penstock.api.landing import Listener as Listener
    from penstock.api.landing import Summary as Summary
    from penstock.api.landing import land as land
    from penstock.api.machine import doctor as doctor
    from penstock.api.models import Fit as Fit
    from penstock.api.models import fit_model as fit_model
    from penstock.api.models import plot_model as plot_model
    from penstock.api.models import read_model as read_model
    from penstock.api.plugin_list import Plugin as Plugin
    from penstock.api.plugin_list import plugins as plugins
    from penstock.api.prediction import Forecasts as Forecasts
    from penstock.api.prediction import JudgedRuns as JudgedRuns
    from penstock.api.prediction import predict as predict
    from penstock.api.prediction import predict_runs as predict_runs
    from penstock.api.runs import Compared as Compared
    from penstock.api.runs import analyze as analyze
    from penstock.api.runs import compare as compare
    from penstock.api.runs import resume as resume
    from penstock.api.runs import run as run
    from penstock.api.testbeds import StartedTestbed as StartedTestbed
    from penstock.api.testbeds import attach_testbed as attach_testbed
    from penstock.api.testbeds import remove_testbed as remove_testbed
    from penstock.api.testbeds import remove_testbeds as remove_testbeds
    from penstock.api.testbeds import start_testbed as start_testbed
    from penstock.api.testbeds import testbeds as testbeds
    from penstock.api.testbeds import use_testbed as use_testbed
    from penstock.autoscaler.core.actions import AutoscalerEvent as AutoscalerEvent
    from penstock.autoscaler.core.actions import AutoscalerNotice as AutoscalerNotice
    from penstock.autoscaler.core.actions import GroupMeasured as GroupMeasured
    from penstock.autoscaler.core.actions import HostAnswered as HostAnswered
    from penstock.autoscaler.core.actions import HostStarted as HostStarted
    from penstock.autoscaler.core.actions import LanesCommanded as LanesCommanded
    from penstock.autoscaler.core.actions import LanesDecided as LanesDecided
    from penstock.autoscaler.core.actions import LanesHandedOver as LanesHandedOver
    from penstock.autoscaler.core.actions import PartitionsUnread as PartitionsUnread
    from penstock.autoscaler.core.packing import Problem as Problem
    from penstock.autoscaler.core.packing.any_fit import BestFit as BestFit
    from penstock.autoscaler.core.packing.any_fit import BestFitDecreasing as BestFitDecreasing
    from penstock.autoscaler.core.packing.any_fit import FirstFit as FirstFit
    from penstock.autoscaler.core.packing.any_fit import FirstFitDecreasing as FirstFitDecreasing
    from penstock.autoscaler.core.packing.any_fit import NextFit as NextFit
    from penstock.autoscaler.core.packing.any_fit import NextFitDecreasing as NextFitDecreasing
    from penstock.autoscaler.core.packing.any_fit import WorstFit as WorstFit
    from penstock.autoscaler.core.packing.any_fit import WorstFitDecreasing as WorstFitDecreasing
    from penstock.autoscaler.core.packing.keep import KeepPacking as KeepPacking
    from penstock.autoscaler.core.packing.modified_any_fit import ModifiedBestFit as ModifiedBestFit
    from penstock.autoscaler.core.packing.modified_any_fit import (
        ModifiedBestFitPartition as ModifiedBestFitPartition,
    )
    from penstock.autoscaler.core.packing.modified_any_fit import (
        ModifiedWorstFit as ModifiedWorstFit,
    )
    from penstock.autoscaler.core.packing.modified_any_fit import (
        ModifiedWorstFitPartition as ModifiedWorstFitPartition,
    )
    from penstock.autoscaler.core.policies.fixed import (
        CooperativeStickyPolicy as CooperativeStickyPolicy,
    )
    from penstock.autoscaler.core.policies.fixed import RangePolicy as RangePolicy
    from penstock.autoscaler.core.policies.packing import PackingPolicy as PackingPolicy
    from penstock.autoscaler.core.policies.scalers import HpaPolicy as HpaPolicy
    from penstock.autoscaler.core.policies.scalers import LagPolicy as LagPolicy
    from penstock.autoscaler.core.policy import Caution as Caution
    from penstock.autoscaler.core.policy import Decider as Decider
    from penstock.autoscaler.core.policy import Decision as Decision
    from penstock.autoscaler.core.policy import Trigger as Trigger
    from penstock.autoscaler.core.policy import View as View
    from penstock.autoscaler.manifests import KubernetesPlace as KubernetesPlace
    from penstock.domain.arrivals import Arrivals as Arrivals
    from penstock.domain.arrivals import BurstArrivals as BurstArrivals
    from penstock.domain.arrivals import ConstantArrivals as ConstantArrivals
    from penstock.domain.arrivals import PoissonArrivals as PoissonArrivals
    from penstock.domain.arrivals import RecordedArrivals as RecordedArrivals
    from penstock.domain.autoscaling import Algorithm as Algorithm
    from penstock.domain.autoscaling import Autoscaling as Autoscaling
    from penstock.domain.autoscaling import HostAnswer as HostAnswer
    from penstock.domain.autoscaling import PartitionSpeed as PartitionSpeed
    from penstock.domain.autoscaling import Policy as Policy
    from penstock.domain.autoscaling import SpeedMeasurement as SpeedMeasurement
    from penstock.domain.broker_view import BrokerCounters as BrokerCounters
    from penstock.domain.broker_view import BrokerRates as BrokerRates
    from penstock.domain.broker_view import BrokerView as BrokerView
    from penstock.domain.broker_view import KafkaHistogram as KafkaHistogram
    from penstock.domain.broker_view import ProcessUse as ProcessUse
    from penstock.domain.broker_view import RequestClass as RequestClass
    from penstock.domain.broker_view import RequestRates as RequestRates
    from penstock.domain.broker_view import RequestTimes as RequestTimes
    from penstock.domain.client_kind import ProducerKind as ProducerKind
    from penstock.domain.client_kind import ReaderKind as ReaderKind
    from penstock.domain.cluster import ClientQuotas as ClientQuotas
    from penstock.domain.cluster import ClusterSpec as ClusterSpec
    from penstock.domain.cluster import TopicSpec as TopicSpec
    from penstock.domain.consumers import Consumers as Consumers
    from penstock.domain.content import Content as Content
    from penstock.domain.designs import Design as Design
    from penstock.domain.designs.full import FullDesign as FullDesign
    from penstock.domain.designs.star import StarDesign as StarDesign
    from penstock.domain.errors import BadInput as BadInput
    from penstock.domain.errors import FaultDidNotTake as FaultDidNotTake
    from penstock.domain.errors import MissingPart as MissingPart
    from penstock.domain.errors import PenstockError as PenstockError
    from penstock.domain.errors import TestbedError as TestbedError
    from penstock.domain.errors import TooManyRejects as TooManyRejects
    from penstock.domain.facts import ClusterFacts as ClusterFacts
    from penstock.domain.facts import Coordinate as Coordinate
    from penstock.domain.facts import FactPoint as FactPoint
    from penstock.domain.facts import FittedLine as FittedLine
    from penstock.domain.facts import MeasuredRange as MeasuredRange
    from penstock.domain.facts import PointConditions as PointConditions
    from penstock.domain.fault import BrokerFault as BrokerFault
    from penstock.domain.fault import FaultPlan as FaultPlan
    from penstock.domain.fault import Struck as Struck
    from penstock.domain.fault import When as When
    from penstock.domain.grid import ExperimentGrid as ExperimentGrid
    from penstock.domain.kpi import Kpi as Kpi
    from penstock.domain.lake.cycle import LaneCycle as LaneCycle
    from penstock.domain.lake.partition import Partition as Partition
    from penstock.domain.lake.pipeline import Pipeline as Pipeline
    from penstock.domain.lake.pipeline import Stream as Stream
    from penstock.domain.lake.pipeline import TableBy as TableBy
    from penstock.domain.metrics import Distribution as Distribution
    from penstock.domain.metrics import Estimate as Estimate
    from penstock.domain.metrics import MessageCounts as MessageCounts
    from penstock.domain.metrics import RunMetrics as RunMetrics
    from penstock.domain.metrics import RunSecond as RunSecond
    from penstock.domain.network import Delay as Delay
    from penstock.domain.network import Link as Link
    from penstock.domain.network import LinkCondition as LinkCondition
    from penstock.domain.network import Loss as Loss
    from penstock.domain.network import NetworkProfile as NetworkProfile
    from penstock.domain.network import NetworkSpec as NetworkSpec
    from penstock.domain.network import ProfileStep as ProfileStep
    from penstock.domain.network.condition import HostNames as HostNames
    from penstock.domain.network.delay_constant import ConstantDelay as ConstantDelay
    from penstock.domain.network.delay_normal import NormalDelay as NormalDelay
    from penstock.domain.network.delay_pareto import ParetoDelay as ParetoDelay
    from penstock.domain.network.delay_uniform import UniformDelay as UniformDelay
    from penstock.domain.network.loss_bernoulli import BernoulliLoss as BernoulliLoss
    from penstock.domain.network.loss_gilbert_elliott import (
        GilbertElliottLoss as GilbertElliottLoss,
    )
    from penstock.domain.objective import KpiWeights as KpiWeights
    from penstock.domain.objective import Objective as Objective
    from penstock.domain.run import ClientCounters as ClientCounters
    from penstock.domain.run import ClockAnchor as ClockAnchor
    from penstock.domain.run import ConsumerReport as ConsumerReport
    from penstock.domain.run import Existing as Existing
    from penstock.domain.run import ObserverCost as ObserverCost
    from penstock.domain.run import ProducerReport as ProducerReport
    from penstock.domain.run import Run as Run
    from penstock.domain.run import RunEvent as RunEvent
    from penstock.domain.run import RunSpec as RunSpec
    from penstock.domain.scenario import Scenario as Scenario
    from penstock.domain.settings import ProducerSettings as ProducerSettings
    from penstock.domain.shapes import CurvePoint as CurvePoint
    from penstock.domain.shapes import Finding as Finding
    from penstock.domain.shapes import Shape as Shape
    from penstock.domain.shapes.between import BetweenShape as BetweenShape
    from penstock.domain.shapes.difference import DifferenceShape as DifferenceShape
    from penstock.domain.shapes.flat import FlatShape as FlatShape
    from penstock.domain.shapes.knee import KneeShape as KneeShape
    from penstock.domain.shapes.monotone import FallsShape as FallsShape
    from penstock.domain.shapes.monotone import RisesShape as RisesShape
    from penstock.domain.shapes.ratio import RatioShape as RatioShape
    from penstock.domain.sizes import Sizes as Sizes
    from penstock.domain.sizes.lognormal import LognormalSizes as LognormalSizes
    from penstock.domain.sizes.uniform import UniformSizes as UniformSizes
    from penstock.domain.sizes.weighted import WeightedSize as WeightedSize
    from penstock.domain.sizes.weighted import WeightedSizes as WeightedSizes
    from penstock.domain.steadiness import Disturbance as Disturbance
    from penstock.domain.steadiness import Steadiness as Steadiness
    from penstock.domain.value import Bound as Bound
    from penstock.domain.value import Doc as Doc
    from penstock.domain.value import FieldError as FieldError
    from penstock.domain.verdict import Judgement as Judgement
    from penstock.domain.verdict import Verdict as Verdict
    from penstock.domain.warm_up import ClusterState as ClusterState
    from penstock.domain.warm_up import RequestKind as RequestKind
    from penstock.domain.warm_up import WarmUp as WarmUp
    from penstock.domain.warm_up import WarmUpLimits as WarmUpLimits
    from penstock.domain.workload import Payload as Payload
    from penstock.domain.workload import Workload as Workload
    from penstock.kafka.connection import ExistingCluster as ExistingCluster
    from penstock.lake.audit import Audit as Audit
    from penstock.lake.audit import TopicAudit as TopicAudit
    from penstock.lake.capacity import Capacity as Capacity
    from penstock.lake.capacity import Quantiles as Quantiles
    from penstock.lake.compact import Compacted as Compacted
    from penstock.lake.decoded import Decoded as Decoded
    from penstock.lake.decoded import RecordValue as RecordValue
    from penstock.lake.decoders import Decoder as Decoder
    from penstock.lake.decoders import Decoding as Decoding
    from penstock.lake.decoders.avro import AvroDecoder as AvroDecoder
    from penstock.lake.decoders.function import FunctionDecoder as FunctionDecoder
    from penstock.lake.decoders.json import JsonDecoder as JsonDecoder
    from penstock.lake.decoders.raw import RawDecoder as RawDecoder
    from penstock.lake.isolated.isolation import DecoderHost as DecoderHost
    from penstock.lake.rejection import Rejection as Rejection
    from penstock.lake.rejection import RejectKind as RejectKind
    from penstock.lake.rejects import RejectAlarm as RejectAlarm
    from penstock.lake.reland import Relanded as Relanded
    from penstock.lake.status import PipelineStatus as PipelineStatus
    from penstock.lake.status import TableStatus as TableStatus
    from penstock.load.contents.random_bytes import RandomContent as RandomContent
    from penstock.load.contents.sales import SalesContent as SalesContent
    from penstock.load.contents.telemetry import TelemetryContent as TelemetryContent
    from penstock.load.contents.web_log import WebLogContent as WebLogContent
    from penstock.load.producer_job import ProducerJob as ProducerJob
    from penstock.load.producers import LoadProducer as LoadProducer
    from penstock.load.producers.librdkafka import LibrdkafkaProducer as LibrdkafkaProducer
    from penstock.load.readers.plain import PlainReader as PlainReader
    from penstock.models.calibration import LeftOutRun as LeftOutRun
    from penstock.models.fitted import FitRecord as FitRecord
    from penstock.models.fitted import FittedModel as FittedModel
    from penstock.models.forecast import Forecast as Forecast
    from penstock.models.forecast import Judged as Judged
    from penstock.models.forecast import JudgedFigure as JudgedFigure
    from penstock.models.forecast import JudgedPart as JudgedPart
    from penstock.models.observation import BrokerWork as BrokerWork
    from penstock.models.observation import MeasuredLatency as MeasuredLatency
    from penstock.models.observation import MeasuredReading as MeasuredReading
    from penstock.models.observation import MeasuredSending as MeasuredSending
    from penstock.models.observation import Observation as Observation
    from penstock.models.other_traffic import OtherTraffic as OtherTraffic
    from penstock.models.path.physics import Physics as Physics
    from penstock.models.path.predict import LatencyScatter as LatencyScatter
    from penstock.models.path.predict import PathModel as PathModel
    from penstock.models.path.predict import PredictedLatency as PredictedLatency
    from penstock.models.path.predict import Prediction as Prediction
    from penstock.models.path.predict import Saturated as Saturated
    from penstock.models.path.predict import Scatter as Scatter
    from penstock.models.path.spec import SimulatedMachines as SimulatedMachines
    from penstock.models.reading import FittedReading as FittedReading
    from penstock.models.reading import ReadThroughput as ReadThroughput
    from penstock.models.throughput import FittedRequestInterval as FittedRequestInterval
    from penstock.models.throughput import RequestInterval as RequestInterval
    from penstock.models.throughput import SendThroughput as SendThroughput
    from penstock.models.traffic import PredictedTraffic as PredictedTraffic
    from penstock.planner.partitioning import Partitioning as Partitioning
    from penstock.planner.partitioning import PartitioningSolution as PartitioningSolution
    from penstock.planner.strategies import Strategy as Strategy
    from penstock.planner.strategies.bro_max import BroMax as BroMax
    from penstock.planner.strategies.bro_min import BroMin as BroMin
    from penstock.planner.strategies.enough import EnoughStrategy as EnoughStrategy
    from penstock.planner.strategies.ms_cnfl import MsCnfl as MsCnfl
    from penstock.producer.policies import AdaptivePolicy as AdaptivePolicy
    from penstock.producer.policies.mean_latency import MeanLatencyBatching as MeanLatencyBatching
    from penstock.producer.policies.reactive_batching import ReactiveBatching as ReactiveBatching
    from penstock.producer.policies.stepwise import StepwiseTuning as StepwiseTuning
    from penstock.producer.situation import Adjustment as Adjustment
    from penstock.producer.situation import Configuration as Configuration
    from penstock.producer.situation import Outlook as Outlook
    from penstock.producer.situation import Situation as Situation
    from penstock.report.comparison import ComparedSide as ComparedSide
    from penstock.report.comparison import ComparedValue as ComparedValue
    from penstock.report.comparison import Comparison as Comparison
    from penstock.report.comparison import ComparisonRow as ComparisonRow
    from penstock.report.disagreement import Disagreement as Disagreement
    from penstock.report.disagreement import RepeatRange as RepeatRange
    from penstock.report.drift import Drift as Drift
    from penstock.report.drift import DriftedFigure as DriftedFigure
    from penstock.report.reported_run import ReportedRun as ReportedRun
    from penstock.runs.experiments.kinds import ExperimentKind as ExperimentKind
    from penstock.runs.experiments.kinds import PointJob as PointJob
    from penstock.runs.experiments.kinds.consumption import (
        ConsumptionExperiment as ConsumptionExperiment,
    )
    from penstock.runs.experiments.kinds.end_to_end import EndToEndExperiment as EndToEndExperiment
    from penstock.runs.experiments.kinds.experiment_kind import SHARED_AXES as SHARED_AXES
    from penstock.runs.experiments.kinds.experiment_kind import FactFigure as FactFigure
    from penstock.runs.experiments.kinds.experiment_kind import FigureFormat as FigureFormat
    from penstock.runs.experiments.kinds.experiment_kind import PointResults as PointResults
    from penstock.runs.experiments.kinds.experiment_kind import load_of as load_of
    from penstock.runs.experiments.kinds.production import (
        ProductionExperiment as ProductionExperiment,
    )
    from penstock.runs.experiments.point_figures import PointFigures as PointFigures
    from penstock.runs.experiments.points import PointRepeat as PointRepeat
    from penstock.runs.experiments.points import PointResult as PointResult
    from penstock.runs.experiments.series import ExperimentSeries as ExperimentSeries
    from penstock.runs.run_directory import RunDirectory as RunDirectory
    from penstock.specs.loader import dump_yaml as dump_yaml
    from penstock.testbed.capabilities import Capabilities as Capabilities
    from penstock.testbed.capabilities import CapabilityCheck as CapabilityCheck
    from penstock.testbed.cluster import Cluster as Cluster
    from penstock.testbed.fault_injector import FaultInjector as FaultInjector
    from penstock.testbed.faults import Fault as Fault
    from penstock.testbed.faults.cut_link import CutLink as CutLink
    from penstock.testbed.faults.kill import Kill as Kill
    from penstock.testbed.faults.pause import Pause as Pause
    from penstock.testbed.faults.pause_client import PauseClient as PauseClient
    from penstock.testbed.faults.restart import Restart as Restart
    from penstock.testbed.faults.slow_cpu import SlowCpu as SlowCpu
    from penstock.testbed.faults.slow_link import SlowLink as SlowLink
    from penstock.testbed.faults.stop import Stop as Stop
    from penstock.testbed.health import Health as Health
    from penstock.testbed.health import health as health
    from penstock.testbed.network.profile_player import ProfilePlayer as ProfilePlayer
    from penstock.testbed.observe import observe as observe

# What a package or a module in it needs that the base installation lacks; the first that fits.
_EXTRAS = {
    "api.autoscaling": "lake",
    "api.calibration": "all",
    "api.capacity": "all",
    "api.files": "cli",
    "api.kubernetes": "lake",
    "api.lake": "lake",
    "api.landing": "lake",
    "api.machine": "testbed",
    "api.models": "all",
    "api.prediction": "all",
    "api.testbeds": "testbed",
    "api": "analysis",
    "autoscaler": "lake",
    "lake": "lake",
    "load": "testbed",
    "models": "models",
    "report": "analysis",
    "runs": "analysis",
    "specs": "cli",
    "testbed": "testbed",
}
__getattr__, __dir__ = lazy.exports(__name__, _EXTRAS)
