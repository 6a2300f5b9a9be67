"""Contents of messages, one file per kind. They determine how well messages compress.

A new one is one new file here (`domain.plugins`).
"""

from penstock.domain.content import Content

__all__ = ["Content"]
