"""`penstock plugins`: what can be written as `kind:` in files."""

from __future__ import annotations

import click

from penstock.api import plugin_list
from penstock.cli import options, output


@click.command()
@click.argument("group", required=False)
@options.as_json
def plugins(group: str | None, as_json: bool) -> None:
    """List the installed plug-ins, or those of a group.

    GROUP is a name of the first column, such as `arrivals`. docs/plugins.md shows how to write one.
    """
    listed = plugin_list.plugins(group)
    if as_json:
        output.emit_json(list(listed))
        return
    output.table(
        ["group", "kind", "what it is", "package"],
        [
            [one.group, one.name, one.summary or "(broken)", one.module.partition(".")[0]]
            for one in listed
        ],
    )
    for one in listed:
        if one.problem:
            output.warn(one.problem)
