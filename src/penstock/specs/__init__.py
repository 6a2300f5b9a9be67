"""Files to domain values and back: the loader, problems with their place and fix, JSON schemas.

loader     YAML or JSON → domain values, and back
text       the data of a file, with the line of every value
problems   what is wrong in a file: where, what, and the fix
units      units in field names, and what a user may have meant by another
schema     the JSON schema of each kind of file
files      files that are written whole or not at all, and locks
"""

from typing import TYPE_CHECKING

from penstock import lazy

if TYPE_CHECKING:
    from penstock.specs.loader import FILE_KINDS as FILE_KINDS
    from penstock.specs.loader import dump_json as dump_json
    from penstock.specs.loader import dump_json_line as dump_json_line
    from penstock.specs.loader import dump_yaml as dump_yaml
    from penstock.specs.loader import load as load
    from penstock.specs.loader import parse as parse
    from penstock.specs.loader import to_data as to_data

# Lazy: reading a client.properties needs neither YAML nor cattrs.
__getattr__, __dir__ = lazy.exports(__name__, {"loader": "cli"})
