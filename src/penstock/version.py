"""The number of this version, for what is written into files. Also in pyproject.toml.

Not in the package itself, which offers everything: nothing below the command line imports that.
"""

__version__ = "0.1.0"
