"""`penstock schema`: JSON schemas of the files, for people and editors."""

from __future__ import annotations

import click

from penstock.domain.errors import BadInput
from penstock.specs.loader import FILE_KINDS, dump_json
from penstock.specs.schema import json_schema, summary


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="The list as JSON.")
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON schema of a kind of file, or list the kinds.

    For completion in an editor, save it and begin a file with the line
    `# yaml-language-server: $schema=PATH`.
    """
    if name is None:
        click.echo(_listing(as_json), nl=False)
    elif name in FILE_KINDS:
        click.echo(dump_json(json_schema(FILE_KINDS[name])), nl=False)
    else:
        raise BadInput(
            f"{name!r} is not a kind of file", f"use one of {', '.join(sorted(FILE_KINDS))}"
        )


def _listing(as_json: bool) -> str:
    kinds = {name: summary(cls) for name, cls in sorted(FILE_KINDS.items())}
    if as_json:
        return dump_json(kinds)
    width = max(map(len, kinds))
    lines = [f"{name:{width}}  {line}" for name, line in kinds.items()]
    return "\n".join(["Print one with `penstock schema NAME`.", "", *lines, ""])
