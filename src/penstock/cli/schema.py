"""`penstock schema`: JSON schemas of the files, for people and editors."""

from __future__ import annotations

import click

from penstock.api import files
from penstock.specs.loader import dump_json


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="The list as JSON.")
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON schema of a kind of file, or list the kinds.

    For completion in an editor, save it and begin a file with the line
    `# yaml-language-server: $schema=PATH`.
    """
    text = _listing(as_json) if name is None else dump_json(files.schema(name))
    click.echo(text, nl=False)


def _listing(as_json: bool) -> str:
    kinds = files.file_kinds()
    if as_json:
        return dump_json(kinds)
    width = max(map(len, kinds))
    lines = [f"{name:{width}}  {line}" for name, line in kinds.items()]
    return "\n".join(["Print one with `penstock schema NAME`.", "", *lines, ""])
