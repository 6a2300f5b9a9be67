"""The testbed's network: namespaces around one router that applies the conditions of links.

Empty on purpose: the packet handler is a process of its own that starts in a tenth of a second,
and whatever is imported here it would import too.
"""
