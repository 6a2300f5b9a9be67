"""Finds Java; fetches pinned jars and checks them."""
