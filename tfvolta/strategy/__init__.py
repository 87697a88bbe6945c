"""Distribution strategies: what a config's strategy and communication sections become, and what the graph shows of it.

Dependencies point one way inside the package too:
devices, communication, packing, history → kind → default, one_device, mirrored → registry → jit → factory.
"""
