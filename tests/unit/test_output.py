"""The one table renderer."""

from __future__ import annotations

import pytest

from penstock.cli import output


def test_brackets_are_shown_as_they_are_in_cells_and_headers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.table(["figure", "median [range]"], [["x [bold]", "3 [1, 4]"]])
    text = capsys.readouterr().out
    assert "median [range]" in text
    assert "x [bold]" in text
