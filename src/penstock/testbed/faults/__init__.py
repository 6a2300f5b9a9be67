"""Faults, one file per kind: its fields, how it is carried out, checked and undone.

A new one is one new file here (`domain.plugins`). Files that name a fault are read without a testbed
too, so these modules import what only a testbed needs when they strike.
"""

from penstock.domain.fault import BrokerFault, Fault, Struck

__all__ = ["BrokerFault", "Fault", "Struck"]
