"""Experiments: what a cluster can do, point by point of a grid, as facts. The kinds: `kinds`."""
