"""The C++ through which a library's kernels are found and begun."""

from __future__ import annotations

from .msl.declarations import Entry


def glue(entries: dict[str, Entry]) -> str:
    """Code that exports, for entry n of the dict, what the launch needs.

    `metalsim_kernel_n` runs one thread, `metalsim_types_n` returns the types of the parameters
    and `metalsim_enabled_n` whether parameter i is bound under the function constants as set.
    """
    lines = ['\n# 1 "metalsim glue"']
    for n, (host, entry) in enumerate(entries.items()):
        kernel = f"{entry.kernel.name}{entry.arguments}"
        arguments, enabled = [], []
        for i, p in enumerate(entry.kernel.parameters):
            if p.position:
                arguments.append(f"msl::{p.position}()")
            elif p.is_buffer:
                arguments.append(f"msl::bound({p.index})")
            else:
                arguments.append(f"msl::threadgroup_argument({p.index})")
            if p.condition:
                enabled.append(f"if (i == {i}) return bool({p.condition});")
        lines += [
            f"// {host}",
            f'extern "C" void metalsim_kernel_{n}() {{ {kernel}({", ".join(arguments)}); }}',
            f'extern "C" const msl::Type* metalsim_types_{n}() {{'
            f" static constexpr auto all = msl::parameters({kernel}); return all.types; }}",
            f'extern "C" bool metalsim_enabled_{n}(unsigned i) {{'
            f" {' '.join(enabled)} (void)i; return true; }}",
        ]
    return "\n".join(lines) + "\n"
