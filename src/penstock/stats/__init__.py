"""Histograms, intervals by batch means, tests for trends, fits. Pure."""

from penstock.extras import require

require("testbed", "scipy")
