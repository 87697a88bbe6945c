"""What a model is made of, layer by layer: shapes, weights and multiply-adds. No TensorFlow.

``bridge.layer_figures`` makes the table of a Keras model; everything here is plain data and rules over it.
"""

from tfvolta.footprint.layer import LayerFigures, WeightFigures
from tfvolta.footprint.product import Product

__all__ = ["LayerFigures", "Product", "WeightFigures"]
