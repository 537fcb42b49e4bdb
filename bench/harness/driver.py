"""The part of CUDA's driver API for copies and events, in the context of MLX and torch."""

from __future__ import annotations

import ctypes
import functools

_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE


class DriverError(RuntimeError):
    """The driver is missing or too old for a function, or the function failed."""


class Driver:
    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(str(error)) from None
        self.call("cuInit", ctypes.c_uint(0))
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DriverError(f"this driver has no {name}") from None
        status = function(*arguments)
        if status != 0:
            raise DriverError(f"{name} failed with CUDA error {status}")

    def cache_bytes(self) -> int:
        value = ctypes.c_int()
        self.call(
            "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(_L2_CACHE_SIZE), self._device
        )
        return value.value

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event

    def seconds(self, start: ctypes.c_void_p, stop: ctypes.c_void_p) -> float:
        """The time between two events; waits for the second."""
        self.call("cuEventSynchronize", stop)
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), start, stop)
        return milliseconds.value / 1e3


@functools.cache
def driver() -> Driver:
    """The driver of the first device.

    Raises:
        DriverError: If there is none.
    """
    return Driver()
