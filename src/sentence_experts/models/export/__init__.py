"""Models in other forms: ONNX graphs and 8-bit arithmetic."""
