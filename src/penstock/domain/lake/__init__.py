"""The words of topics to the lake: pipeline, stream, decoder, plan of lanes, order, report."""
