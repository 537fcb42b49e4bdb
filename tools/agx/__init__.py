"""What Mesa's compiler for Apple's GPUs makes of Metal kernels, on Linux and without a GPU."""
