"""Evidence of runs: its schema, its store on disk, and reading it back. Needs no TensorFlow."""
