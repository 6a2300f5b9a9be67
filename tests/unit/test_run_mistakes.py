"""What `penstock run` says of a scenario that cannot be, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main

BASE = (
    "name: a, topic: {name: a}, "
    "workload: {arrivals: {kind: constant, rate_per_s: 1}, duration_s: 10}"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{name: a, topic: {name: a}}", ["workload", "missing"]),
        ("", ["is empty", "`penstock schema scenario` lists its fields"]),
        (
            "{name: p, bootstrap_servers: x, lake: y, streams: []}",
            ["bad.yaml: this looks like a pipeline; use `penstock pipeline run`"],
        ),
        (
            "{name: a, topic: {name: a}, workload: {arrivals: {kind: recorded, file: no.txt}}}",
            ["no.txt"],
        ),
        (
            "{name: a, topic: {name: a}, workload: {arrivals: {kind: constant, rate_per_s: 1}},"
            " settings: {linger.msec: 5}}",
            ["bad.yaml: settings.linger.msec", "did you mean 'linger.ms'"],
        ),
        (
            "{name: a, topic: {name: a}, workload: {arrivals: {kind: constant, rate_per_s: 1}},"
            " matrix: {settings.acks: [7]}}",
            ["settings.acks", "7"],
        ),
        (
            f"{{{BASE}, faults: [{{kind: kill, broker: 4, at_s: 1}}]}}",
            ["bad.yaml: faults.0.broker", "1 to 3"],
        ),
        (
            f"{{{BASE}, faults: [{{kind: kill, broker: leader of b-0, at_s: 1}}]}}",
            ["faults.0.broker", "leader of b-0", "a-0"],
        ),
        (
            f"{{{BASE}, faults: [{{kind: pause-client, client: consumer-2, at_s: 1}}]}}",
            ["faults.0.client", "consumer-1"],
        ),
        (
            f"{{{BASE}, faults: [{{kind: kill, broker: 1, when: {{signal: x, at_least: 1}}}}]}}",
            ["faults.0.when.signal", "acknowledged", "bytes_in"],
        ),
        (
            f"{{{BASE}, faults: [{{kind: kill, broker: 1, at_s: 99}}]}}",
            ["faults.0.at_s", "after the end"],
        ),
        (
            f"{{{BASE}, faults: [{{kind: cut-link, src: producers, dst: brokers, at_s: 1}}]}}",
            ["faults.0", "place: namespaces"],
        ),
        (f"{{{BASE}, matrix: {{seed: [1, 2]}}}}", ["matrix.seed", "repeats"]),
        (
            f"{{{BASE}, matrix: {{workload.arrivals.rate_per_s: [5, 5]}}}}",
            ["matrix.workload.arrivals.rate_per_s", "two values"],
        ),
        (
            f"{{{BASE}, matrix: {{settings.acks: [1]}}, "
            "expect: [{kind: falls, figure: latency.p75_ms, over: settings.acks}]}",
            ["latency.p75_ms", "is not a figure"],
        ),
        (f"{{{BASE}, settings: {{bootstrap.servers: 'x:1'}}}}", ["bootstrap.servers"]),
    ],
)
def test_mistakes_are_reported_before_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["penstock", "run", "bad.yaml"])
    Path("bad.yaml").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    for word in words:
        assert word in stderr
    assert not Path("runs").exists(), "a directory was made for nothing"
