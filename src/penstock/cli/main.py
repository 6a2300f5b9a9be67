"""The command `penstock`: one module per verb, and what all verbs share: errors and signals."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import click

from penstock import __version__
from penstock.cli import output
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.schema import schema
from penstock.cli.testbed import testbed
from penstock.domain.errors import PenstockError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def penstock() -> None:
    """Find, prove and keep the right configuration of a Kafka data pipeline."""


for command in (demo, doctor, schema, testbed):
    penstock.add_command(command)


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
        output.error("interrupted; everything was removed")
        sys.exit(130)


def _terminate(_number: int, _frame: FrameType | None) -> Any:
    raise SystemExit(143)


if __name__ == "__main__":
    main()
