"""Reports for a person: one run, two runs compared, a plan. Needs no TensorFlow."""
