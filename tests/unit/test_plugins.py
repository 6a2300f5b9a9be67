"""Plug-ins of other packages: found by the loader and in the schema; broken ones are named."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock import specs
from penstock.cli.experiment import experiment
from penstock.domain import plugins
from penstock.domain.errors import BadInput
from penstock.domain.facts import ClusterFacts, Coordinate, MeasuredRange, PointConditions, merged
from penstock.domain.grid import ExperimentGrid, complete, quick
from penstock.domain.metrics import Estimate
from penstock.domain.plugin_class import flaw_of
from penstock.domain.value import Value
from penstock.planner.strategies import Strategy
from penstock.producer.policies import AdaptivePolicy
from penstock.report.facts import points as points_table
from penstock.report.facts import render, sentence
from penstock.runs.experiments.assemble import assemble
from penstock.runs.experiments.points import PointResult, conditions, points
from penstock.specs.loader import FILE_KINDS
from penstock.specs.schema import json_schema

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a package as pip leaves it: the module `others_plugins` and its entry points."""

    def make(entry_points: str, code: str, module: str = "others_plugins") -> None:
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code))
        about = tmp_path / "others-1.2.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.2\n")
        (about / "entry_points.txt").write_text(textwrap.dedent(entry_points))
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(tmp_path)

    return make


@dataclass(frozen=True)
class Example:
    """A kind `stairs` of one group: its code, and a file that uses it."""

    code: str
    file_kind: str
    file: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Planning(Value):
    """A file with a strategy in it. (None of Penstock's own has one yet.)"""

    strategy: Strategy


@dataclass(frozen=True, kw_only=True)
class Adapting(Value):
    """A file with an adaptive policy in it."""

    policy: AdaptivePolicy


KINDS: dict[str, type[Value]] = {**FILE_KINDS, "planning": Planning, "adapting": Adapting}

EXAMPLES = {
    "penstock.adaptive_policies": Example(
        """
        from dataclasses import dataclass
        from penstock import Adjustment, AdaptivePolicy

        @dataclass(frozen=True, kw_only=True)
        class Stairs(AdaptivePolicy):
            "Stays as it is."
            kind = "stairs"

            def decide(self, situation):
                return Adjustment(configuration=situation.now, sentence="nothing changes")
        """,
        "adapting",
        {"policy": {"kind": "stairs"}},
    ),
    "penstock.strategies": Example(
        """
        from dataclasses import dataclass
        from penstock import Strategy

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Strategy):
            "As many brokers as there may be, and a partition on each."
            kind = "stairs"

            def choose(self, problem):
                return problem.plan(problem.most_brokers, problem.most_brokers)
        """,
        "planning",
        {"strategy": {"kind": "stairs"}},
    ),
    "penstock.arrivals": Example(
        """
        from dataclasses import dataclass
        from penstock.domain.arrivals import Arrivals

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Arrivals):
            "Messages in steps."
            kind = "stairs"
            step_s: float = 1.0
            mean_per_s = 1.0

            def times_s(self, rng):
                return iter(())
        """,
        "workload",
        {"arrivals": {"kind": "stairs", "step_s": 2.0}},
    ),
    "penstock.contents": Example(
        """
        from dataclasses import dataclass
        from penstock import Content

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Content):
            kind = "stairs"
            steps: int = 1

            def records(self, rng):
                while True:
                    yield b"step" * self.steps
        """,
        "workload",
        {
            "arrivals": {"kind": "constant", "rate_per_s": 1},
            "payload": {"content": {"kind": "stairs", "steps": 3}},
        },
    ),
    "penstock.decoders": Example(
        """
        from dataclasses import dataclass
        from penstock.lake.decoders import Decoder

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Decoder):
            "Values in steps."
            kind = "stairs"

            def decoding(self, host):
                raise NotImplementedError
        """,
        "pipeline",
        {"streams": [{"topics": ["sales"], "table": "sales", "decoder": {"kind": "stairs"}}]},
    ),
    "penstock.delays": Example(
        """
        from dataclasses import dataclass
        from penstock.domain.network import Delay

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Delay):
            "A delay in steps."
            kind = "stairs"
            step_ms: float = 1.0

            def sampler(self, rng):
                return lambda: self.step_ms

            def cdf(self, delay_ms):
                return float(delay_ms >= self.step_ms)

            def netem(self):
                return ()
        """,
        "network",
        {"links": [{"src": "any", "dst": "any", "condition": {"delay": {"kind": "stairs"}}}]},
    ),
    "penstock.designs": Example(
        """
        from dataclasses import dataclass
        from penstock.domain.designs import Design

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Design):
            "One step after the other."
            kind = "stairs"

            def combinations(self, matrix, seed):
                return [{axis: values[0] for axis, values in matrix.items()}]
        """,
        "scenario",
        {"design": {"kind": "stairs"}},
    ),
    "penstock.experiments": Example(
        """
        from penstock.domain.grid import ExperimentGrid
        from penstock.runs.experiments.kinds import ExperimentKind

        class Stairs(ExperimentKind):
            "What the stairs cost."
            kind = "stairs"
            axes = ("partitions",)
            grid = ExperimentGrid(partitions=(1, 2))
            reported_figures = ()

            def measure(self, job):
                raise NotImplementedError

            def outcome(self, facts, text):
                return []
        """,
        "facts",
        {
            "made_at": "now",
            "points": [
                {
                    "experiment": "stairs",
                    "conditions": {
                        "message_bytes": 100,
                        "partitions": 1,
                        "replication": 1,
                        "brokers": 1,
                    },
                    "figures": {},
                    "repeats": 1,
                }
            ],
        },
    ),
    "penstock.faults": Example(
        """
        from dataclasses import dataclass
        from penstock.testbed.faults import Fault, Struck

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Fault):
            "Somebody falls down the stairs."
            kind = "stairs"

            def strike(self, cluster):
                return Struck("fell down the stairs")
        """,
        "faults",
        {"faults": [{"kind": "stairs", "at_s": 1}]},
    ),
    "penstock.losses": Example(
        """
        from dataclasses import dataclass
        from penstock.domain.network import Loss

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Loss):
            "A loss in steps."
            kind = "stairs"
            mean = 0.0

            def sampler(self, rng):
                return lambda: False

            def netem(self):
                return ()
        """,
        "network",
        {"links": [{"src": "any", "dst": "any", "condition": {"loss": {"kind": "stairs"}}}]},
    ),
    "penstock.packing": Example(
        """
        from dataclasses import dataclass
        from penstock.autoscaler.core.packing import Algorithm

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Algorithm):
            "One lane after the other."
            kind = "stairs"
            steps: int = 1

            def __call__(self, problem):
                return dict.fromkeys(problem.speeds, 0)
        """,
        "pipeline",
        {"autoscaling": {"policy": {"kind": "packing", "algorithm": {"kind": "stairs"}}}},
    ),
    "penstock.policies": Example(
        """
        from dataclasses import dataclass
        from penstock.autoscaler.core.policies import Policy

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Policy):
            "As many lanes as steps."
            kind = "stairs"
            steps: int = 1

            def decider(self, settings):
                raise NotImplementedError
        """,
        "pipeline",
        {"autoscaling": {"policy": {"kind": "stairs", "steps": 2}}},
    ),
    "penstock.producers": Example(
        """
        from dataclasses import dataclass
        from penstock.load.producers import ProducerKind

        @dataclass(frozen=True, kw_only=True)
        class Stairs(ProducerKind):
            "Publishes step by step."
            kind = "stairs"
            steps: int = 3

            def producer(self, job):
                raise NotImplementedError
        """,
        "scenario",
        {"producer": {"kind": "stairs", "steps": 4}},
    ),
    "penstock.readers": Example(
        """
        from dataclasses import dataclass
        from penstock.load.readers import ReaderKind

        @dataclass(frozen=True, kw_only=True)
        class Stairs(ReaderKind):
            "Unpacks step by step."
            kind = "stairs"

            def messages(self, value):
                return value.split(b",")
        """,
        "scenario",
        {"consumers": {"reader": {"kind": "stairs"}}},
    ),
    "penstock.shapes": Example(
        """
        from dataclasses import dataclass
        from penstock.domain.shapes import Finding, Shape

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Shape):
            "A figure in steps."
            kind = "stairs"

            def check(self, points):
                return Finding(holds=True, sentence="it has steps")
        """,
        "scenario",
        {"expect": [{"kind": "stairs", "figure": "lost_share", "over": "workload.producers"}]},
    ),
    "penstock.sizes": Example(
        """
        from dataclasses import dataclass
        from penstock.domain.sizes import Sizes

        @dataclass(frozen=True, kw_only=True)
        class Stairs(Sizes):
            "Sizes in steps."
            kind = "stairs"
            mean_bytes = 100.0

            def draw(self, rng):
                while True:
                    yield 100
        """,
        "workload",
        {
            "arrivals": {"kind": "constant", "rate_per_s": 1},
            "payload": {"sizes": {"kind": "stairs"}},
        },
    ),
}
# What a file of the kind needs beside.
REST: dict[str, dict[str, Any]] = {
    "pipeline": {
        "name": "shop",
        "bootstrap_servers": "localhost:9092",
        "lake": "lake",
        "streams": [{"topics": ["sales"], "table": "sales"}],
    },
    "scenario": {
        "name": "demo",
        "topic": {"name": "t"},
        "workload": {"arrivals": {"kind": "constant", "rate_per_s": 1}},
        "matrix": {"workload.producers": [1, 2]},
    },
}


def load(example: Example, name: str = "stairs") -> Any:
    data = REST.get(example.file_kind, {}) | example.file
    text = json.dumps(data).replace('"stairs"', f'"{name}"')
    return specs.parse(text, KINDS[example.file_kind], "file.json")


def test_every_group_has_an_example() -> None:
    assert set(EXAMPLES) == set(plugins.WORDS)


@pytest.mark.parametrize("group", EXAMPLES)
def test_a_kind_of_another_package_is_found_by_the_loader_and_in_the_schema(
    group: str, install: Install
) -> None:
    example = EXAMPLES[group]
    with pytest.raises(BadInput, match="'stairs' is unknown; use one of"):
        load(example)
    assert '"stairs"' not in json.dumps(json_schema(KINDS[example.file_kind]))

    install(f"[{group}]\nstairs = others_plugins:Stairs\n", example.code)

    assert specs.to_data(load(example)) == specs.to_data(load(example))
    assert plugins.get(group, "stairs").__module__ == "others_plugins"
    assert '"stairs"' in json.dumps(json_schema(KINDS[example.file_kind]))


@pytest.mark.parametrize("group", EXAMPLES)
def test_a_wrong_name_lists_the_right_ones_also_those_of_other_packages(
    group: str, install: Install
) -> None:
    install(f"[{group}]\nstairs = others_plugins:Stairs\n", "raise RuntimeError('not loaded')")
    with pytest.raises(BadInput) as error:
        load(EXAMPLES[group], "stairz")
    for name in (*plugins.names(group), "did you mean 'stairs'?"):
        assert name in str(error.value)


@pytest.mark.parametrize("group", EXAMPLES)
def test_every_own_kind_of_penstock_can_be_used(group: str) -> None:
    assert plugins.every(group)
    assert not any(
        getattr(kind, "__abstractmethods__", ()) for kind in plugins.every(group).values()
    )


POISSON = {"arrivals": {"kind": "poisson", "rate_per_s": 1}}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("Other = 1", "AttributeError"),
        ("Stairs = 1", "is not a subclass of penstock.domain.arrivals:Arrivals"),
        (
            "from penstock.domain.arrivals import Arrivals\nclass Stairs(Arrivals): kind = 'step'",
            "does not have kind = 'stairs'",
        ),
        (
            "from penstock.domain.arrivals import Arrivals\nclass Stairs(Arrivals): kind = 'stairs'",
            "does not define mean_per_s, times_s",
        ),
    ],
)
def test_a_broken_package_is_named_and_stops_only_who_uses_it(
    code: str, problem: str, install: Install
) -> None:
    install("[penstock.arrivals]\nstairs = others_plugins:Stairs\n", code)
    assert specs.parse(POISSON, FILE_KINDS["workload"])
    assert json_schema(FILE_KINDS["network"])
    for use in (
        lambda: load(EXAMPLES["penstock.arrivals"]),
        lambda: json_schema(FILE_KINDS["workload"]),
    ):
        with pytest.raises(BadInput) as error:
            use()
        assert "stairs = others_plugins:Stairs (penstock.arrivals) of others 1.2" in str(
            error.value
        )
        assert problem in str(error.value)


def stairs(fields: str, before: str = "", decorator: str = "@dataclass(frozen=True)") -> str:
    """Arrivals with these fields."""
    return f"""
from __future__ import annotations
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from penstock import Arrivals, Doc
from penstock.domain.value import Value
{before}
{decorator}
class Stairs(Arrivals):
    kind = "stairs"
    mean_per_s = 1.0
    {fields}
    def times_s(self, rng):
        yield 0.0
"""


LATER = "if TYPE_CHECKING:\n    from decimal import Decimal\n"
STEP = "@dataclass(frozen=True)\nclass Step(Value):\n    on: date\n    next: Step | None = None\n"


@pytest.mark.parametrize(
    ("code", "problem", "fix"),
    [
        (
            stairs("on: date"),
            "has a field on of type date, which is not supported in files",
            "use str, int",
        ),
        (stairs("on: date | None = None"), "field on of type date", "use str, int"),
        (stairs("steps: list[int]"), "steps of type list[int]", "tuple[X, ...]"),
        (stairs("step: int | Arrivals"), "step of type int | ", "or a Value"),
        (stairs("steps: tuple[Step, ...]", STEP), "has a field on of type date", "use str, int"),
        (stairs("cost: Decimal", LATER), "name 'Decimal' is not defined", "TYPE_CHECKING"),
        (
            stairs("step_s: float", decorator=""),
            "has step_s, which is not a field",
            "put @dataclass(",
        ),
    ],
)
def test_a_class_whose_fields_cannot_be_used_is_refused_when_it_is_loaded(
    code: str, problem: str, fix: str, install: Install
) -> None:
    install("[penstock.arrivals]\nstairs = others_plugins:Stairs\n", code)
    with pytest.raises(BadInput) as error:
        load(EXAMPLES["penstock.arrivals"])
    assert "others_plugins:Stairs (penstock.arrivals) of others 1.2" in error.value.message
    assert problem in error.value.message
    assert fix in error.value.fix and "repair that package" in error.value.fix


def test_a_class_may_have_the_fields_that_penstocks_own_have(install: Install) -> None:
    step = STEP.replace("date", "Annotated[str, Doc('a day')]")
    fields = """
    most: ClassVar[int] = 3
    step_s: float = 1.0
    steps: tuple[Step, ...] = ()
    shape: Literal["even", "odd"] | None = None
    names: Mapping[str, int | str | None] | None = None
    before: Arrivals | None = None
    """
    install("[penstock.arrivals]\nstairs = others_plugins:Stairs\n", stairs(fields, step))
    assert load(EXAMPLES["penstock.arrivals"]).arrivals.steps == ()


@pytest.mark.parametrize("group", plugins.WORDS)
def test_penstocks_own_kinds_have_no_flaw(group: str) -> None:
    word = pkgutil.resolve_name(plugins.WORDS[group])
    for name, kind in plugins.every(group).items():
        assert flaw_of(kind, word, name, "") is None


def test_an_experiment_without_its_axes_is_refused_when_it_is_loaded(install: Install) -> None:
    code = """
        from penstock import ExperimentKind

        class Stairs(ExperimentKind):
            kind = "stairs"
            reported_figures = ()
            def measure(self, job): ...
            def outcome(self, facts, text): ...
        """
    install("[penstock.experiments]\nstairs = others_plugins:Stairs\n", code)
    with pytest.raises(BadInput, match=r"of others 1\.2 does not define axes, grid"):
        plugins.get("penstock.experiments", "stairs")


def test_an_error_of_a_class_names_its_package_and_the_place_in_the_file(install: Install) -> None:
    fails = "def __post_init__(self):\n        {}['step_s']"
    install("[penstock.arrivals]\nstairs = others_plugins:Stairs\n", stairs(fails))
    with pytest.raises(BadInput) as error:
        specs.parse("arrivals:\n  kind: stairs\n", FILE_KINDS["workload"], "w.yaml")
    assert "w.yaml" in str(error.value) and "arrivals: the plug-in stairs" in str(error.value)
    assert "others_plugins:Stairs (penstock.arrivals) of others 1.2" in str(error.value)
    assert "cannot be made: KeyError: 'step_s'; repair that package" in str(error.value)


def test_a_broken_package_is_named_when_the_file_is_read_also_if_only_a_field_has_its_name(
    install: Install,
) -> None:
    install("[penstock.contents]\nstairs = others_plugins:Stairs\n", "import nothing_of_that_name")
    with pytest.raises(BadInput, match=r"\(penstock\.contents\) of others 1\.2 cannot be loaded"):
        load(EXAMPLES["penstock.contents"])


def test_two_packages_with_one_name_are_both_named(install: Install, tmp_path: Path) -> None:
    entry = "[penstock.contents]\nstairs = others_plugins:Stairs\n"
    install(entry, EXAMPLES["penstock.contents"].code)
    about = tmp_path / "more-2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: more\nVersion: 2.0\n")
    (about / "entry_points.txt").write_text(entry)
    with pytest.raises(BadInput, match="two packages") as error:
        load(EXAMPLES["penstock.contents"])
    assert "others 1.2" in str(error.value)
    assert "more 2.0" in str(error.value)


def test_the_name_of_an_own_kind_stays_its_own(install: Install) -> None:
    install("[penstock.arrivals]\npoisson = others_plugins:Stairs\n", "")
    assert specs.parse(POISSON, FILE_KINDS["workload"])
    with pytest.raises(BadInput, match=r"of others 1\.2 has a name that is taken"):
        json_schema(FILE_KINDS["workload"])


def test_kinds_with_one_class_name_keep_their_own_schemas(install: Install, tmp_path: Path) -> None:
    install(
        "[penstock.arrivals]\nstairs = others_plugins:Stairs\n"
        "[penstock.contents]\nstairs = more_plugins:Stairs\n",
        EXAMPLES["penstock.arrivals"].code,
    )
    code = textwrap.dedent(EXAMPLES["penstock.contents"].code)
    (tmp_path / "more_plugins.py").write_text(code)
    schemas = json_schema(FILE_KINDS["workload"])["$defs"]
    fields = [set(d["properties"]) for name, d in schemas.items() if name.endswith("Stairs")]
    assert len(fields) == 2
    assert {"kind", "step_s"} in fields
    assert {"kind", "steps"} in fields


def test_an_experiment_of_another_package_is_a_command(install: Install) -> None:
    group = "penstock.experiments"
    install(f"[{group}]\nstairs = others_plugins:Stairs\n", EXAMPLES[group].code)
    assert "What the stairs cost." in CliRunner().invoke(experiment, ["stairs", "--help"]).output
    error = CliRunner().invoke(experiment, ["stair"]).exception
    assert isinstance(error, BadInput)
    assert all(name in str(error) for name in ("consumption", "production", "stairs"))
    assert "did you mean 'stairs'?" in str(error)


LINGERING = """
    from penstock import SHARED_AXES, ExperimentGrid, ExperimentKind, FactFigure, PointFigures

    class Stairs(ExperimentKind):
        "What lingering costs."
        kind = "stairs"
        axes = SHARED_AXES
        grid = ExperimentGrid(
            partitions=(1, 2, 3), message_bytes=(100,), replication=(1,), brokers=(1,),
            further={"linger_ms": (0, 5.5), "codec": ("none", "lz4")},
        )
        reported_figures = (FactFigure("latency_ms", "latency", "ms"),)

        def measure(self, job):
            return PointFigures({})

        def facts(self, results):
            return {"further": {"lingering_ms": results.points[0].figures["latency_ms"]}}

        def outcome(self, facts, text):
            return [f"Lingering costs {text(facts.further['lingering_ms'], 'ms')}"]
"""


def test_an_experiment_may_add_axes_and_facts(install: Install) -> None:
    install("[penstock.experiments]\nstairs = others_plugins:Stairs\n", LINGERING)
    grid = complete("stairs", ExperimentGrid(further={"linger_ms": (0, 5, 50)}, repeats=1))
    assert grid.further == {"linger_ms": (0, 5, 50), "codec": ("none", "lz4")}
    every = points("stairs", grid)
    assert [p.label for p in every][-3:] == [
        "partitions=2, linger_ms=5, codec=none",
        "partitions=2, linger_ms=50, codec=none",
        "partitions=2, linger_ms=0, codec=lz4",
    ]
    assert len(conditions("stairs", replace(grid, design="full"))) == 3 * 3 * 2
    assert len({p.conditions.further for p in points("stairs", quick(grid))}) == 1

    figures = {"latency_ms": Estimate(value=2.0)}
    results = [
        PointResult(experiment="stairs", conditions=p.conditions, repeat=0, figures=figures)
        for p in every
    ]
    facts = assemble("stairs", grid, results, "now")
    assert specs.parse(specs.dump_json(facts), ClusterFacts) == facts
    assert facts.further == {"lingering_ms": figures["latency_ms"]}
    assert facts.valid["stairs.linger_ms"] == MeasuredRange(low=0, high=50)
    assert merged(facts, replace(facts, further={})).further == facts.further
    assert sentence(facts, "stairs") == "Lingering costs 2 ms."
    shown = points_table(facts, "stairs")
    assert list(shown.columns)[:3] == ["partitions", "linger ms", "codec"]
    assert "linger ms 50" in render(facts, "stairs", "stairs")


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"lingers": (1,)}, "'lingers' is not an axis of stairs; it adds linger_ms, codec"),
        ({"linger_ms": ()}, "must have values, none twice"),
        ({"linger_ms": (1, 1)}, "must have values, none twice"),
    ],
)
def test_axes_that_an_experiment_does_not_add_are_refused(
    further: dict[str, Any], message: str, install: Install
) -> None:
    install("[penstock.experiments]\nstairs = others_plugins:Stairs\n", LINGERING)
    with pytest.raises(BadInput, match=message):
        complete("stairs", ExperimentGrid(further=further))


@pytest.mark.parametrize("axis", ["brokers", "linger ms", "policy"])
def test_an_added_axis_has_a_name_of_its_own(axis: str) -> None:
    where = PointConditions(message_bytes=1, partitions=1, replication=1, brokers=1)
    with pytest.raises(BadInput, match="must be a name"):
        replace(where, further=(Coordinate(axis=axis, value=1),))


def test_a_broken_experiment_hides_no_other(install: Install) -> None:
    install(
        "[penstock.experiments]\nstairs = others_plugins:Stairs\n", "import nothing_of_that_name"
    )
    listed = CliRunner().invoke(experiment, ["--help"], catch_exceptions=False).output
    assert "production" in listed and "(broken) the plug-in stairs" in listed
    with pytest.raises(BadInput, match="cannot be loaded"):
        CliRunner().invoke(experiment, ["stairs"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("group", "file_kind"),
    [
        ("penstock.policies", "pipeline"),
        ("penstock.packing", "pipeline"),
        ("penstock.contents", "workload"),
    ],
)
def test_the_schema_reports_broken_packages_also_where_files_say_a_name(
    group: str, file_kind: str, install: Install
) -> None:
    install(f"[{group}]\nstairs = others_plugins:Stairs\n", "import nothing_of_that_name")
    with pytest.raises(BadInput, match=r"of others 1\.2 cannot be loaded"):
        json_schema(FILE_KINDS[file_kind])


def test_faults_are_read_without_what_a_testbed_needs() -> None:
    code = (
        "import sys; from penstock.domain import plugins; plugins.every('penstock.faults');"
        "print([m for m in ('psutil', 'confluent_kafka', 'penstock.testbed.cluster')"
        " if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


# --- docs/plugins.md -------------------------------------------------------------------------------

DOCS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def test_the_documented_groups_are_those_that_there_are() -> None:
    rows = re.findall(r"^\| `(penstock\.\w+)` \|[^|]*\| `penstock\.(\w+)` \|", DOCS, re.MULTILINE)
    assert {group: getattr(penstock, name) for group, name in rows} == {
        group: pkgutil.resolve_name(place) for group, place in plugins.WORDS.items()
    }
    table = "".join(line for line in DOCS.splitlines() if line.startswith("| `penstock."))
    groups = {group.partition(".")[2] for group in plugins.WORDS}
    for name in set(re.findall(r"`penstock\.(\w+)`", table)) - groups:
        assert hasattr(penstock, name), name


def test_the_documented_methods_are_those_that_a_plug_in_must_have() -> None:
    rows = re.findall(r"^\| `(penstock\.\w+)` \|[^|]*\|[^|]*\| ([^|]*) \|", DOCS, re.MULTILINE)
    assert {group: set(re.findall(r"`(\w+)`", methods)) for group, methods in rows} == {
        group: set(pkgutil.resolve_name(place).__abstractmethods__)
        for group, place in plugins.WORDS.items()
    }


def test_the_calls_in_the_table_of_groups_work() -> None:
    situation = penstock.Situation(
        now=penstock.Configuration(), predict=lambda configuration: penstock.Outlook()
    )
    problem = penstock.Partitioning(
        throughput_mb_per_s=1, partition_mb_per_s=10, consumer_mb_per_s=20, most_brokers=3
    )
    names = {"penstock": penstock, "situation": situation, "problem": problem}
    calls = re.findall(r"`(penstock\.\w+\(\)[^`]*)`", DOCS)
    results = [type(eval(call, names)) for call in calls]
    assert results == [penstock.Adjustment, penstock.PartitioningSolution]


def test_the_documented_example_works(install: Install) -> None:
    code, project, workload = (
        re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)[0]
        for language in ("python", "toml", "yaml")
    )
    ((group, entries),) = tomllib.loads(project)["project"]["entry-points"].items()
    ((name, value),) = entries.items()
    install(f"[{group}]\n{name} = {value}\n", code, value.partition(":")[0])

    arrivals = specs.parse(workload, FILE_KINDS["workload"], "workload.yaml").arrivals  # type: ignore[attr-defined]
    assert arrivals.kind == name
    times = arrivals.times_s(Random(1))
    due_s = [next(times) for _ in range(10_000)]
    assert len(due_s) / due_s[-1] == pytest.approx(arrivals.mean_per_s, rel=0.05)
    assert "messages per second while it is open" in json.dumps(json_schema(FILE_KINDS["workload"]))


@pytest.mark.parametrize("group", plugins.WORDS)
def test_built_in_kinds_keep_the_rules_of_plug_ins(group: str) -> None:
    for name, kind in plugins._own(group).items():
        assert flaw_of(kind, plugins._word(group), name, plugins.WORDS[group]) is None


def test_two_kinds_of_one_name_are_an_error() -> None:
    class Base:
        pass

    class One(Base):
        kind = "same"

    class Two(Base):
        kind = "same"

    with pytest.raises(TypeError, match="both have kind = 'same'"):
        plugins.below(Base)
    del One, Two


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(BadInput, match=r"'poison' is unknown; use one of .*did you mean 'poisson'"):
        plugins.get("penstock.arrivals", "poison")


def test_contributors_are_told_of_every_group() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\|[^|]*\| `([\w/]+)/` \|([^|]*)\|", text, re.MULTILINE)
    told = {(folder, name) for folder, classes in rows for name in re.findall(r"`(\w+)`", classes)}
    for place in plugins.WORDS.values():
        package, _, name = place.removeprefix("penstock.").partition(":")
        assert (package.replace(".", "/"), name) in told
