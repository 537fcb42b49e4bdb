"""Apple's AIR, the LLVM bitcode of a compiled Metal kernel, to SPIR-V."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .frontend import CLANG, LLVM, PASSES, Refused, assemble, first_error
from .packages import Tree

_LIBRARY = Path(__file__).with_name("air_library.cl")
# Apple's address spaces 1, 2 and 3 are SPIR's.
_LAYOUT = (
    "e-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024"
    "-n8:16:32:64-G1"
)
_DROPPED = re.compile(
    r"^(?:@llvm\.global_ctors|!air\.|!llvm\.ident|!llvm\.module\.flags)[^\n]*\n"
    r'|^define [^\n]*section "air\.static_init" \{.*?^\}\n',
    re.M | re.S,
)


def to_spirv(
    tree: Tree,
    bitcode: bytes,
    folder: Path,
    constants: Mapping[str, int],
    group: tuple[int, int, int],
) -> Path:
    """Compiles a kernel's AIR in a folder that is its own; returns the SPIR-V.

    Args:
        tree: the compilers.
        bitcode: of one kernel.
        folder: where its files go.
        constants: values of function constants by name; of those not given it is 0.
        group: threads of a threadgroup.

    Raises:
        Refused: it has something that is not translated.
    """
    air, text, library = folder / "kernel.air", folder / "kernel.air.ll", folder / "library.ll"
    air.write_bytes(bitcode)
    tree.run(f"{LLVM}/llvm-dis", air, "-o", text)
    kernel, translated = translate(text.read_text(), constants, group)
    text.write_text(translated)
    resources = tree.root / "usr/lib/llvm-19/lib/clang/19"
    options = ["-cc1", "-x", "cl", "-cl-std=CL3.0", "-triple", "spir64-unknown-unknown", "-O1"]
    options += ["-finclude-default-header", "-fdeclare-opencl-builtins"]
    options += ["-resource-dir", str(resources), "-internal-isystem", f"{resources}/include"]
    # Apple's functions have no builtins, so no loop becomes a copy of memory.
    linked, optimized = folder / "linked.ll", folder / "kernel.ll"
    try:
        tree.run(CLANG, *options, "-emit-llvm", "-o", library, _LIBRARY)
        tree.run(f"{LLVM}/llvm-link", text, library, "-S", "-o", linked)
        tree.run(
            f"{LLVM}/opt",
            *(
                "-passes=internalize,default<O2>,default<O2>",
                f"-internalize-public-api-list={kernel}",
            ),
            *(*PASSES, "-disable-loop-idiom-all"),
            *(linked, "-S", "-o", optimized),
        )
    except RuntimeError as error:
        raise Refused(f"LLVM: {first_error(str(error))}") from None
    left = set(re.findall(r"@(air_\w+)", optimized.read_text()))
    if left:
        raise Refused(f"no translation of {', '.join(sorted(left))}")
    return assemble(tree, optimized)


def translate(
    air: str, constants: Mapping[str, int], group: tuple[int, int, int]
) -> tuple[str, str]:
    """Name and text of a kernel as SPIR has it: a function with only buffers as its arguments calls
    Apple's, whose intrinsics are functions of air_library.cl.

    Args:
        air: LLVM's assembly.
        constants, group: as of to_spirv.
    """
    metadata = dict(re.findall(r"^!(\d+) = !\{(.*)\}$", air, re.M))
    root = metadata[re.search(r"^!air\.kernel = !\{!(\d+)\}", air, re.M)[1]]
    kernel, arguments = re.match(r"ptr @(\S+), !\d+, !(\d+)", root).groups()
    kinds = [
        re.search(r'!"air\.(\w+)"', metadata[i])[1]
        for i in re.findall(r"!(\d+)", metadata[arguments])
    ]
    types = _types(air, kernel)
    air = _with_constants(air, metadata, constants)
    air = _DROPPED.sub("", air)
    air = re.sub(r"^target datalayout.*", f'target datalayout = "{_LAYOUT}"', air, flags=re.M)
    air = re.sub(r"^target triple.*", 'target triple = "spir64-unknown-unknown"', air, flags=re.M)
    air = re.sub(r"@air\.([\w.]+)", lambda m: f"@air_{m[1].replace('.', '_')}", air)
    air = re.sub(r"(call|declare) (?=[^@\n]*@air_)", r"\1 spir_func ", air)
    air = re.sub(
        rf"^define [^\n]*?void @{re.escape(kernel)}\(",
        "define internal spir_func void @body(",
        air,
        flags=re.M,
    )
    air = re.sub(r"^(define [^\n]*)\{$", r"\1alwaysinline {", air, flags=re.M)
    air = air.replace('"no-builtins"', "").replace('"frame-pointer"="all"', "")
    return kernel, without_bfloat(_unrolled(air)) + _wrapper(kernel, kinds, types, group)


def _unrolled(air: str) -> str:
    """Loops to a number are unrolled, as pragmas unroll those of this repository."""
    to_number = r"= icmp \w+ i32 %\d+, \d+\n  br i1 [^\n]*!llvm\.loop (!\d+)$"
    for loop in re.findall(to_number, air, re.M):
        air = re.sub(rf"^({loop} = distinct .*)\}}$", r"\1, !899999}", air, flags=re.M)
    return air + '!899999 = !{!"llvm.loop.unroll.full"}\n'


def _types(air: str, kernel: str) -> list[str]:
    """The types of a function's arguments."""
    head = re.search(rf"^define [^\n]*@{re.escape(kernel)}\(", air, re.M).end()
    depth, types, current = 1, [], ""
    for sign in air[head:]:
        depth += (sign in "(<[") - (sign in ")>]")
        if depth == 0 or (sign == "," and depth == 1):
            types.append(current.strip())
            current = ""
        else:
            current += sign
        if depth == 0:
            return [re.match(r"ptr addrspace\(\d\)|<[^>]*>|\S+", type)[0] for type in types]
    raise ValueError(f"the arguments of {kernel} do not end")


def _with_constants(air: str, metadata: Mapping[str, str], constants: Mapping[str, int]) -> str:
    """Function constants with values. Apple's runtime puts them where a function copies them from,
    before any kernel runs.
    """
    listed = re.search(r"^!air\.function_constants = !\{(.*)\}", air, re.M)
    for i in re.findall(r"!(\d+)", listed[1]) if listed else ():
        symbol, name = re.match(
            r'ptr addrspace\(2\) @(\S+), !"\w+", !"(\w+)"', metadata[i]
        ).groups()
        copied = re.search(
            rf"(%\d+) = load (\w+), ptr addrspace\(2\) @{re.escape(symbol)}\b.*\n"
            r"\s+store \2 \1, ptr addrspace\(2\) @([\w.]+),",
            air,
        )
        if not copied:
            raise Refused(f"function constant {name} is not found")
        variable = re.escape(copied[3])
        value = f"= internal addrspace(2) constant {copied[2]} {constants.get(name, 0)}"
        air = re.sub(rf"(?m)^(@{variable}) = .*? global \w+ undef", rf"\1 {value}", air)
    return air


def without_bfloat(assembly: str) -> str:
    """The same with bfloat as its bits, which llvm-spirv would take for half.

    Raises:
        Refused: it does with bfloat what is not translated.
    """
    if not re.search(r"\bbfloat\b", assembly):
        return assembly
    call = "call spir_func"
    flags = r"(?:(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc) )*"
    for pattern, to in (
        (r"fpext bfloat (\S+) to float", rf"{call} float @bfloat_to_float(i16 \1)"),
        (r"fptrunc float (\S+) to bfloat", rf"{call} i16 @float_to_bfloat(float \1)"),
        (
            rf"(fadd|fsub|fmul|fdiv) {flags}bfloat (\S+), ([^\s,]+)",
            rf"{call} i16 @bfloat_\1(i16 \2, i16 \3)",
        ),
        (
            r"call bfloat @llvm\.fmuladd\.bf16\(bfloat ([^,]+), bfloat ([^,]+), bfloat ([^)]+)\)",
            r"call spir_func i16 @bfloat_fmuladd(i16 \1, i16 \2, i16 \3)",
        ),
        (r"(?m)^declare bfloat @llvm\..*\n", ""),
    ):
        assembly = re.sub(pattern, to, assembly)
    left = re.search(r"= (?:tail )?(f\w+|call|[su]itofp|bitcast)\b[^\n]*\bbfloat\b", assembly)
    if left:
        raise Refused(f"{left[0].removeprefix('= ')[:60]} has no translation")
    assembly = re.sub(r"\b0xR([0-9A-F]{4})\b", lambda m: str(int(m[1], 16)), assembly)
    assembly = re.sub(r"(?m)^(?!!)(.*)$", lambda m: re.sub(r"\bbfloat\b", "i16", m[1]), assembly)
    return assembly + "".join(
        f"declare spir_func {result} @{name}({types})\n"
        for name, result, types in (
            ("bfloat_to_float", "float", "i16"),
            ("float_to_bfloat", "i16", "float"),
            ("bfloat_fmuladd", "i16", "i16, i16, i16"),
            *((f"bfloat_{op}", "i16", "i16, i16") for op in ("fadd", "fsub", "fmul", "fdiv")),
        )
    )


def _wrapper(kernel: str, kinds: list[str], types: list[str], group) -> str:
    """What SPIR takes for the kernel."""
    parameters, lines, passed, positions = [], [], [], set()
    for i, (kind, type) in enumerate(zip(kinds, types, strict=True)):
        if kind == "buffer":
            parameters.append(f"{type} noalias %buffer{i}")
            passed.append(f"{type} %buffer{i}")
            continue
        positions.add(kind)
        vector = re.match(r"<(\d) x (\w+)>", type)
        last = "poison"
        for axis in range(int(vector[1]) if vector else 1):
            scalar = vector[2] if vector else type
            value = f"%position{i}.{axis}"
            lines.append(f"{value} = call spir_func i32 @position_{kind}(i32 {axis})")
            if scalar == "i16":
                lines.append(f"{value}.short = trunc i32 {value} to i16")
                value += ".short"
            if vector:
                with_it = f"%vector{i}.{axis}"
                lines.append(
                    f"{with_it} = insertelement {type} {last}, {scalar} {value}, i32 {axis}"
                )
                value = last = with_it
        passed.append(f"{type} {value}")
    spaces = ", ".join(f"i32 {re.search(r'addrspace.(.)', p)[1]}" for p in parameters)
    of_each = {
        "access_qual": '!"none"',
        "type": '!"char*"',
        "base_type": '!"char*"',
        "type_qual": '!""',
    }
    nodes = {"kernel_arg_addr_space": spaces}
    nodes |= {f"kernel_arg_{k}": ", ".join([v] * len(parameters)) for k, v in of_each.items()}
    nodes["reqd_work_group_size"] = ", ".join(f"i32 {n}" for n in group)
    nodes["intel_reqd_sub_group_size"] = "i32 32"
    attached = " ".join(f"!{name} !{900000 + i}" for i, name in enumerate(nodes))
    body = "".join(f"  {line}\n" for line in lines)
    return (
        f"\ndefine spir_kernel void @{kernel}({', '.join(parameters)}) {attached} {{\n{body}"
        f"  call spir_func void @body({', '.join(passed)})\n  ret void\n}}\n"
        + "".join(f"declare spir_func i32 @position_{kind}(i32)\n" for kind in sorted(positions))
        + "".join(f"!{900000 + i} = !{{{node}}}\n" for i, node in enumerate(nodes.values()))
    )
