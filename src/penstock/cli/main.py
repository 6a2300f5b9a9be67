"""The command `penstock`: one module per verb, and what all verbs share: errors and signals."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any

import click

from penstock.cli import output
from penstock.domain.errors import PenstockError
from penstock.version import __version__

# Each is a module of this package with a command of the same name.
VERBS = (
    "analyze", "autoscaler", "compare", "demo", "doctor", "experiment", "model", "pipeline",
    "plugins", "predict", "run", "schema", "testbed",
)  # fmt: skip


class _Verbs(click.Group):
    """Imports the module of a verb on first use, so only its users wait for Spark or Plotly."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"penstock.cli.{name}"), name)
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def penstock() -> None:
    """Measure, predict and land Kafka data pipelines, with evidence."""


def main() -> None:
    # SIGTERM unwinds the stack like Ctrl-C does, so that every `with` cleans up.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        sys.exit(penstock.main(standalone_mode=False))
    except PenstockError as error:
        output.error(str(error))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        output.error("interrupted; all processes stopped")
        sys.exit(130)


def _terminate(_number: int, _frame: FrameType | None) -> Any:
    raise SystemExit(143)


if __name__ == "__main__":
    main()
