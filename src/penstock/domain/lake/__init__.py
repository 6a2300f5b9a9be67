"""Values of a pipeline from topics to the lake: stream, decoder, plan of lanes, order, report."""
