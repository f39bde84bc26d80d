"""Parts that parallel training does not need: datasets, distributions, transforms, ONNX, TensorBoard, pruning."""
