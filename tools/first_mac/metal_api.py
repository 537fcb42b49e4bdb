"""Metal's run-time compiler, called from Python, so that each text and version is apart.

MLX calls the same, in the newest version of the language that the system has.
"""

from __future__ import annotations

import ctypes

from . import items

# MTLLanguageVersion, and the oldest macOS that has it.
VERSIONS = {"3.1": (14,), "3.2": (15,), "4.0": (26,), "4.1": (27,)}
_FAMILIES = {f"Apple{n}": 1000 + n for n in range(5, 11)} | {"Metal3": 5001, "Metal4": 5002}


def number_of(version: str) -> int:
    major, minor = map(int, version.split("."))
    return (major << 16) + minor


class Metal:
    """The default device.

    Attributes:
        objc, framework: The libraries of the runtime and of Metal.

    Raises:
        items.NotRun: If there is none.
    """

    objc = "/usr/lib/libobjc.A.dylib"
    framework = "/System/Library/Frameworks/Metal.framework/Metal"

    def __init__(self) -> None:
        try:
            self._objc, framework = ctypes.CDLL(self.objc), ctypes.CDLL(self.framework)
        except OSError:
            raise items.NotRun("there is no Metal here") from None
        self._objc.objc_getClass.restype = self._objc.sel_registerName.restype = ctypes.c_void_p
        self._objc.objc_getClass.argtypes = [ctypes.c_char_p]
        self._objc.sel_registerName.argtypes = [ctypes.c_char_p]
        framework.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
        self._device = framework.MTLCreateSystemDefaultDevice()
        if not self._device:
            raise items.NotRun("Metal has no device here")

    def _send(self, to: int, selector: str, *arguments, returns=ctypes.c_void_p):
        """A message. Each argument is of a type of ctypes: arm64 passes others elsewhere."""
        types = [type(argument) for argument in arguments]
        prototype = ctypes.CFUNCTYPE(returns, ctypes.c_void_p, ctypes.c_void_p, *types)
        call = prototype(("objc_msgSend", self._objc))
        return call(to, self._objc.sel_registerName(selector.encode()), *arguments)

    def _class(self, name: str) -> int:
        return self._objc.objc_getClass(name.encode())

    def families(self) -> list[str]:
        def has(family: int) -> bool:
            return self._send(
                self._device, "supportsFamily:", ctypes.c_long(family), returns=ctypes.c_bool
            )

        return [name for name, family in _FAMILIES.items() if has(family)]

    def compile(self, text: str, version: str) -> str | None:
        """Compiles a text with MLX's options.

        Returns:
            What the compiler said of it, if anything, such as warnings.

        Raises:
            RuntimeError: If it refuses the text; the message is the compiler's.
        """
        send, string = self._send, ctypes.c_char_p(text.encode("ascii"))
        options = send(send(self._class("MTLCompileOptions"), "alloc"), "init")
        send(options, "setFastMathEnabled:", ctypes.c_bool(False), returns=None)
        number = ctypes.c_ulong(number_of(version))
        send(options, "setLanguageVersion:", number, returns=None)
        source = send(self._class("NSString"), "stringWithUTF8String:", string)
        error = ctypes.c_void_p()
        library = send(
            self._device,
            "newLibraryWithSource:options:error:",
            ctypes.c_void_p(source),
            ctypes.c_void_p(options),
            ctypes.c_void_p(ctypes.addressof(error)),
        )
        message = None
        if error.value:
            described = send(error.value, "localizedDescription")
            message = send(described, "UTF8String", returns=ctypes.c_char_p).decode()
        send(options, "release", returns=None)
        if not library:
            raise RuntimeError(message or "the compiler refuses it and says nothing")
        send(library, "release", returns=None)
        return message
