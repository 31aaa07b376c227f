"""For tests of loaders: a virtual clock, a simulated backend, datasets that misbehave."""

from .clock import VirtualClock
from .sim import SimulatedLoader, World

__all__ = ["SimulatedLoader", "VirtualClock", "World"]
