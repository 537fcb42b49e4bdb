"""The symbols of Mach-O files, and of the system's C++ library, as MLX's own files use it."""

from pathlib import Path

from macholib import mach_o
from macholib.MachO import MachO
from macholib.SymbolTable import SymbolTable

from . import mlx_wheel

LIBCXX = "/usr/lib/libc++.1.dylib"
# It has these too, by LLVM's list of its exports on arm64-apple-darwin (libcxx/lib/abi).
LISTED = """
__ZNSt11logic_errorC1EPKc __ZNSt11logic_errorD1Ev __ZNSt8bad_castC1Ev __ZNSt8bad_castD1Ev
__ZNSt11logic_errorC1ERKNSt3__112basic_stringIcNS0_11char_traitsIcEENS0_9allocatorIcEEEE
__ZNSt13runtime_errorC2ERKS_
__ZTISt11logic_error __ZTISt11range_error __ZTISt12domain_error __ZTISt8bad_cast
__ZTVN10__cxxabiv116__enum_type_infoE ___cxa_demangle ___dynamic_cast
__ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6insertENS_11__wrap_iterIPKcEEc
__ZNSt3__19to_stringEj
__ZNSt3__120__libcpp_atomic_waitEPVKvx __ZNSt3__123__cxx_atomic_notify_allEPVKv
__ZNSt3__123__libcpp_atomic_monitorEPVKv
__ZdaPvm __ZdlPvm __ZdlPvmSt11align_val_t __ZdlPvSt11align_val_t __ZnwmSt11align_val_t
__ZnamRKSt9nothrow_t
""".split()
# Where an import is looked for if not in one library, by its place in the list of them.
ANYWHERE = {0: "itself", 0xFE: "any", 0xFF: "the program"}


def libraries(file: Path) -> list[str]:
    """The install names of the libraries that a file loads, in order."""
    (header,) = MachO(str(file)).headers
    loads = (mach_o.LC_LOAD_DYLIB, mach_o.LC_LOAD_WEAK_DYLIB, mach_o.LC_REEXPORT_DYLIB)
    return [name.rstrip(b"\0").decode() for load, _, name in header.commands if load.cmd in loads]


def imports(file: Path) -> dict[str, str]:
    """What a file imports, each with the library it is from, or one of ANYWHERE."""
    loaded = libraries(file)
    found = {}
    for symbol, name in SymbolTable(MachO(str(file))).undefsyms:
        place = (symbol.n_desc >> 8) & 0xFF
        found[name.decode()] = ANYWHERE.get(place) or loaded[place - 1]
    return found


def exports(file: Path) -> set[str]:
    """What a file exports."""
    return {name.decode() for _, name in SymbolTable(MachO(str(file))).extdefsyms}


def libcxx(macos: int) -> set[str]:
    """Symbols that the C++ library of that system has: LISTED, and what MLX imports from it there.

    Or from an older one: none is ever taken out.
    """
    found = {*LISTED}
    for system in filter(macos.__ge__, mlx_wheel.MACOS):
        for file in (mlx_wheel.fetch(system) / "lib").glob("*.dylib"):
            found |= {name for name, library in imports(file).items() if library == LIBCXX}
    return found
