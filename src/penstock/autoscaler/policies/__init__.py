"""Who decides. A policy is one file that registers its name; they are found by importing all."""

from importlib import import_module
from pkgutil import iter_modules

from penstock.autoscaler.policies.registry import names, policy

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["names", "policy"]
