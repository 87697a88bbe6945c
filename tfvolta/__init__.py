"""Verified performance settings for Keras training."""
