"""Distribution strategies: what a config's strategy and communication sections become, and what the graph shows of it.

Dependencies point one way inside the package too:
sharding, serving → coordination; devices, communication, packing, history → kind → default, one_device, mirrored,
parameter_server → registry → jit → factory.
"""
