"""What an operation does with memory, by its name in TensorFlow."""

from __future__ import annotations

# Results that are another view of the first input: nothing is allocated.
# Source: kernels that call ``set_output(0, input)`` or ``BitcastFrom`` in tensorflow/core/kernels.
VIEWS = frozenset(
    {
        "Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient", "Snapshot",
        "ReadVariableOp", "CheckNumerics", "Bitcast", "EnsureShape", "DebugGradientIdentity", "PlaceholderWithDefault",
        "_Arg", "_Retval", "Placeholder",
    }
)  # fmt: skip

# One value of the result from one value of each input; the kernel may write over an input that nobody else needs.
# Source: kernels that call ``forward_input_or_allocate_output``.
ELEMENTWISE = frozenset(
    {
        "Abs", "Acos", "Add", "AddN", "AddV2", "Asin", "Atan", "BiasAdd", "BroadcastTo", "Cast", "Ceil", "ClipByValue",
        "Cos", "Div", "DivNoNan", "Elu", "EluGrad", "Equal", "Erf", "Erfc", "Exp", "Expm1", "FloorDiv", "Floor",
        "Greater", "GreaterEqual", "Inv", "IsFinite", "IsInf", "IsNan", "LeakyRelu", "LeakyReluGrad", "Less",
        "LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "MulNoNan",
        "Neg", "NotEqual", "OnesLike", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu", "Relu6", "Relu6Grad",
        "ReluGrad", "Round", "Rsqrt", "RsqrtGrad", "Select", "SelectV2", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad",
        "Sign", "Sin", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Square",
        "SquaredDifference", "Sub", "Tan", "Tanh", "TanhGrad", "Tile", "Where", "ZerosLike", "Fill", "Xdivy", "Xlogy",
        "Silu",
    }
)  # fmt: skip
# Of these, the ones whose result may have another type or shape than an input, so that they write to new memory.
NOT_IN_PLACE = frozenset({"BroadcastTo", "Tile", "Fill", "Where", "OnesLike", "ZerosLike"})

# Sums over dimensions: XLA ends a chain with them.
REDUCTIONS = frozenset({"Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "BiasAddGrad", "Softmax", "LogSoftmax"})

# Written into the fusion that reads or feeds them by XLA.
FUSED_BY_XLA = ELEMENTWISE | frozenset(
    {
        "Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "BiasAddGrad", "Pad", "PadV2", "Slice", "StridedSlice",
        "StridedSliceGrad", "Transpose", "Concat", "ConcatV2", "Pack", "Unpack", "Split", "SplitV", "Reverse",
        "ReverseV2", "Range", "OneHot", "Softmax", "LogSoftmax", "GatherV2", "ResourceGather",
    }
)  # fmt: skip

# Read or written in place: the optimiser's updates, and what says something about shapes only.
NOTHING = frozenset(
    {
        "NoOp", "Shape", "ShapeN", "Size", "Rank", "Const", "VarIsInitializedOp", "VariableShape",
        "BroadcastGradientArgs", "ConcatOffset", "VarHandleOp", "IteratorGetNextSync",
    }
)  # fmt: skip
