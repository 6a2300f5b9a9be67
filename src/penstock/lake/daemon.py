"""Starts Spark's daemon of Python workers without archives on the path, so that tasks start fast.

Spark puts archives on the path of its workers: its Python parts, and the jar of its core with ten
thousand entries. Python reads their directories again with every task (`invalidate_caches`), which
takes longer than a lane's work; and modules imported from them are compiled in every process.
PySpark is installed here, so the archives are not needed.
"""

from __future__ import annotations

import sys

_ARCHIVES = (".zip", ".jar", ".egg")


def main() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    sys.path_importer_cache.clear()

    from pyspark import daemon  # the installed one, not one from an archive

    daemon.manager()


if __name__ == "__main__":
    main()
