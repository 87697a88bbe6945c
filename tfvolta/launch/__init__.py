"""Starting the workers of a run on this machine, and seeing them through: output, signals, failures, restarts.

Dependencies point one way inside the package: tasks, ports, gpus, binding, ending → environment, command → lines,
outlet, guardian, process → signals, standing, escalation → supervisor → launch; slurm and horovodrun only write.
"""
