"""Runs shown to people: rows for the terminal, comparisons, one page. Values in, text out."""
