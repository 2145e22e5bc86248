"""A regression by one product, for tests that train it and for trials that damage it."""

NET = """
name: "regression"
op { type: "FC" input: "x" input: "w" input: "b" output: "y" }
op { type: "SquaredL2Distance" input: "y" input: "target" output: "distance" }
op { type: "AveragedLoss" input: "distance" output: "loss" }
external_output: "y"
"""
INIT = """
op { type: "GaussianFill" output: "w" arg { name: "shape" ints: 2 ints: 3 } }
op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 2 } arg { name: "value" f: 0.5 } }
op { type: "GivenTensorInt64Fill" output: "unused" arg { name: "shape" ints: 1 } arg { name: "values" ints: 3 } }
"""
