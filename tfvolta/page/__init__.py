"""Runs, searches, benches and ladders as one self-contained HTML page. Needs no TensorFlow."""
