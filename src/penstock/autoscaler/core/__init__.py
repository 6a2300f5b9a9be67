"""The pure core of the autoscaler: write speeds, packing, policies, controller, simulator."""
