"""Running an unmodified training script under a plan."""
