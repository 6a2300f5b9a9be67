"""Load, traces, histograms, runs and campaigns: what is measured, and never what theory expects."""
