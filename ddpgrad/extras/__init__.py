"""What training in parallel does not need: datasets, distributions, image transforms, ONNX, TensorBoard, pruning."""
