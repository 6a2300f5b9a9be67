"""Reports of runs: rows for the terminal, comparisons, one page. Values in, text out."""

from penstock.extras import require

require("analysis", "plotly")
