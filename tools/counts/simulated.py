"""What runs on the software device to evaluate arrays."""


def attached():
    """The simulator, where the extension is one that runs on the software device."""
    import hostmetal

    simulator = hostmetal.start()
    simulator.check = 1

    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return simulator


def launches(simulator, *arrays):
    """What ran to evaluate the arrays."""
    import mlx.core as mx

    simulator.clear()
    mx.eval(*arrays)
    simulator.wait()
    if simulator.faults:
        raise RuntimeError("\n".join(simulator.faults))
    return list(simulator.launches)


def forward_and_backward(simulator, function, arrays):
    """The launches of a function's results, and those of the gradients of its arrays."""
    import mlx.core as mx

    def listed(*arrays):
        outputs = function(*arrays)
        return list(outputs) if isinstance(outputs, tuple | list) else [outputs]

    outputs = listed(*arrays)
    forward = launches(simulator, *outputs)
    cotangents = [mx.ones_like(output) for output in outputs]
    mx.eval(cotangents)
    # Outputs that are held keep their memory, so that each buffer is one array.
    both = launches(simulator, *mx.vjp(listed, list(arrays), cotangents))
    kernels = {launch.kernel for launch in forward}
    return forward, [launch for launch in both if launch.kernel not in kernels]
