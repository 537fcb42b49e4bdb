"""Checks a launch for errors that Metal or MLX would punish, given its kernel's declarations."""

from __future__ import annotations

import struct

# MTL::DataType of a function constant -> its type in MSL and how its value is packed.
CONSTANT_TYPES = {
    3: ("float", "f"),
    16: ("half", "e"),
    29: ("int", "i"),
    33: ("uint", "I"),
    37: ("short", "h"),
    41: ("ushort", "H"),
    45: ("char", "b"),
    49: ("uchar", "B"),
    53: ("bool", "?"),
}


class Refused(Exception):
    """A pipeline or launch is refused; the text names the kernel and what is wrong."""

    is_whole_text = True


def constant_values(pipeline, declared) -> dict[str, object]:
    """The values of a pipeline's function constants.

    Args:
        pipeline: The device's Pipeline.
        declared: The declarations of its library.

    Returns:
        The values by name.

    Raises:
        Refused: If the library does not declare a constant, or declares it with another type, or
            if a constant that the kernel uses is not set.
    """
    kernel, known, values = pipeline.kernel, declared.constants(pipeline.kernel), {}
    for given in pipeline.constants:
        type, packing = CONSTANT_TYPES[given.type]
        if given.index not in known:
            raise Refused(
                f"{kernel}: function constant {given.index} is set, which the library does not "
                "declare"
            )
        constant = known[given.index]
        if constant.type != type:
            raise Refused(
                f"{kernel}: function constant {constant.name} is {constant.type}, and was set as "
                f"{type}"
            )
        (values[constant.name],) = struct.unpack(packing, given.value)
    for name in sorted(declared.needed_constants(kernel) - values.keys()):
        raise Refused(f"{kernel}: it uses function constant {name}, which is not set")
    return values


def check_launch(launch, parameters, bound) -> list[int]:
    """Checks a launch's bindings against its kernel's parameters.

    Args:
        launch: The device's Launch.
        parameters: The kernel's buffers and threadgroup memory.
        bound: Names of the parameters that exist with the launch's function constants.

    Returns:
        The buffer indices that the kernel can write.

    Raises:
        Refused: If anything is bound wrongly, is not bound, or is bound and not declared.
    """
    kernel = launch.pipeline.kernel
    enabled = [p for p in parameters if p.name in bound]
    buffers = {p.index: p for p in enabled if p.space != "threadgroup"}
    memory = {p.index: p for p in enabled if p.space == "threadgroup"}
    bindings = launch.bindings

    for index in bindings.keys() - buffers.keys():
        off = any(p.index == index for p in parameters if p.space != "threadgroup")
        raise Refused(
            f"{kernel}: buffer {index} is bound, which the kernel does not have"
            + (" with these function constants" if off else "")
        )
    for index in launch.threadgroup_memory.keys() - memory.keys():
        raise Refused(
            f"{kernel}: threadgroup memory {index} is set, which the kernel does not have"
        )
    for index, parameter in memory.items():
        if index not in launch.threadgroup_memory:
            raise Refused(f"{kernel}: threadgroup memory {index} ({parameter.name}) has no length")
    for index, parameter in buffers.items():
        where = f"{kernel}: buffer {index} ({parameter.name})"
        if index in launch.stale:
            raise Refused(f"{where} was bound for an earlier pipeline and not for this one")
        if index not in bindings:
            raise Refused(f"{where} is not bound")
        check_binding(where, bindings[index], parameter)
    return sorted(i for i, p in buffers.items() if p.space == "device" and not p.const)


def check_binding(where, binding, parameter) -> None:
    """Checks one binding against its parameter; raises Refused."""
    kind = binding.kind.name
    if kind == "Bytes":
        length = len(binding.bytes)
        if parameter.space != "constant":
            raise Refused(f"{where} is device memory, and was bound by set_bytes")
        if length != parameter.size if not parameter.pointer else length % parameter.size:
            raise Refused(
                f"{where} takes {parameter.type} of {parameter.size} bytes, and {length} were set"
            )
        return
    writable = parameter.space == "device" and not parameter.const
    if writable and kind == "Input":
        raise Refused(f"{where} is written by the kernel, and was bound by set_input_array")
    if not writable and kind == "Output":
        raise Refused(f"{where} is only read by the kernel, and was bound by set_output_array")
    if binding.offset % parameter.alignment:
        raise Refused(
            f"{where} is bound at offset {binding.offset}, and {parameter.type} is aligned to "
            f"{parameter.alignment} bytes"
        )
    if not parameter.pointer and binding.size - binding.offset < parameter.size:
        raise Refused(
            f"{where} takes {parameter.size} bytes, and its allocation ends after "
            f"{binding.size - binding.offset}"
        )
