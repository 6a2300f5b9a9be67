"""Every Python example of the documentation, as it stands there, in a process of its own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lakes
import pytest

from made_up_machine import FITTED
from penstock import specs
from penstock.domain.cluster import TopicSpec
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.testbed.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(block, id=f"{file.name}-{number}")
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, block in enumerate(BLOCK.findall(file.read_text(encoding="utf-8")), 1)
]


def imports(code: str) -> set[str]:
    """The modules of ours that an example imports."""
    nodes = list(ast.walk(ast.parse(code)))
    plain = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    parts = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in plain | parts if name.startswith("penstock")}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(
    example: str, lake_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("docs")
    assert imports(example) == {"penstock"}, "an example uses the public API only"
    servers = lake_cluster.bootstrap_servers
    # The files that examples name, small.
    scenario = {
        "name": "orders",
        "existing": {"bootstrap_servers": servers},
        "topic": {"name": f"{topic}-run", "partitions": 2, "replication": 2},
        "workload": {"arrivals": {"kind": "constant", "rate_per_s": 200}, "duration_s": 3},
        "warm_up_s": 1,
        "cluster_warm_up": {"limit_s": 6},
        "schedule_lag_ms": 10_000,
    }
    (tmp_path / "scenario.yaml").write_text(specs.dump_yaml(scenario))
    pipeline = Pipeline(
        name="docs",
        bootstrap_servers=servers,
        streams=(Stream(topics=(topic,), table="records"),),
        lake="lake",
    )
    (tmp_path / "pipeline.yaml").write_text(specs.dump_yaml(pipeline))
    if "penstock.land" in example:
        lake_cluster.create_topic(TopicSpec(name=topic, partitions=2, replication=1))
        lakes.send(lake_cluster, topic, (b"x" for _ in range(100)))
    if "penstock.predict" in example:
        (tmp_path / "model.json").write_text(specs.dump_json(FITTED))
    if 'place="namespaces"' in example and os.geteuid() != 0:
        pytest.skip("namespaces need root")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if "penstock.land" in example:
        assert "100 rows landed" in done.stdout
