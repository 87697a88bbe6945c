"""What was applied in every run, beside its evidence: listing, comparing, going back, and what a run is held to."""
