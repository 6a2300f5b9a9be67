"""The three experiments of topic partitioning: production, consumption, end-to-end."""
