"""Measures well-known models under any config: contenders take turns, and what is a win has an interval and a band."""
