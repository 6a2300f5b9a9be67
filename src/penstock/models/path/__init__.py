"""The path of a message through Kafka as it is, simulated event by event.

spec       clients, topic, links, machines, and the messages
physics    what machine and software cost, each with a unit and a way to measure it
tables     the tables that the engine works on, and its events
engine     the event loop, compiled
from_run   a run's spec in these terms
simulate   the whole: when each message is acknowledged, appended, readable and received
predict    the distributions that a run would measure, with intervals, or that it is too much
"""

from penstock.models.path.physics import Physics
from penstock.models.path.simulate import PathTimes, simulate
from penstock.models.path.spec import Arrivals, Line, Lines, PathSpec, SimulatedMachines

__all__ = [
    "Arrivals",
    "Line",
    "Lines",
    "PathSpec",
    "PathTimes",
    "Physics",
    "SimulatedMachines",
    "simulate",
]
