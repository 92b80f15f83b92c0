"""What runs in a process of its own: the TensorRT worker and the child side of the protocol."""
