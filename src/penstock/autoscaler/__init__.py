"""The fewest lanes that keep up, and the fewest moves: monitor, packing, controller."""
