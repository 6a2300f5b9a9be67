"""Contents of messages, one file per kind. They determine how well messages compress.

A new one is one new file here (`domain.plugins`).
"""

from penstock.load.contents.content import Content, bodies, records

__all__ = ["Content", "bodies", "records"]
