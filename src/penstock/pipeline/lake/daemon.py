"""Spark's own daemon of Python workers, begun so that lanes start and end quickly.

Spark puts archives on the path of its workers: its Python parts, and the jar of its core with ten
thousand entries. Python reads their directories anew with every task (`invalidate_caches`), which
takes longer than a lane's work; and what is imported from them is compiled in every process. PySpark
is installed here, so they are not needed.
"""

from __future__ import annotations

import sys

_ARCHIVES = (".zip", ".jar", ".egg")


def main() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    sys.path_importer_cache.clear()

    from pyspark import daemon  # and not from an archive

    daemon.manager()


if __name__ == "__main__":
    main()
