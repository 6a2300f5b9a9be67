"""What `penstock run` says of a scenario that cannot be, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{name: a, topic: {name: a}}", ["workload", "missing"]),
        (
            "{name: a, topic: {name: a}, workload: {arrivals: {kind: recorded, file: no.txt}}}",
            ["no.txt"],
        ),
        (
            "{name: a, topic: {name: a}, workload: {arrivals: {kind: constant, rate_per_s: 1}},"
            " settings: {linger.msec: 5}}",
            ["linger.msec"],
        ),
        (
            "{name: a, topic: {name: a}, workload: {arrivals: {kind: constant, rate_per_s: 1}},"
            " matrix: {settings.acks: [7]}}",
            ["settings.acks", "7"],
        ),
    ],
)
def test_a_mistake_is_said_before_anything_starts(
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
    said = capsys.readouterr().err
    for word in words:
        assert word in said
    assert not Path("runs").exists(), "a directory was made for nothing"
