"""The one table renderer."""

from __future__ import annotations

import time

import pytest

from penstock.cli import output


def test_brackets_are_shown_as_they_are_in_cells_and_headers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.table(["figure", "median [range]"], [["x [bold]", "3 [1, 4]"]])
    text = capsys.readouterr().out
    assert "median [range]" in text
    assert "x [bold]" in text


def test_a_log_has_a_line_that_counts_up_every_ten_seconds_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with output.progress() as say:
        for second in range(25):
            now_s = float(second)
            say(f"{1_000 * second:,} sent, {second * 0.5:.1f} s")
        say("draining consumers")
        say("draining consumers")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "0 sent, 0.0 s",
        "10,000 sent, 5.0 s",
        "20,000 sent, 10.0 s",
        "draining consumers",
    ]
