"""The models that can be measured, each built by the same code on every Keras."""
