"""The time of change that NTFS keeps of each file, and ``os.stat`` does not tell on Windows."""

from __future__ import annotations

import ctypes
import os
import sys

_BASIC_INFORMATION = 0  # FileBasicInfo
_EPOCH = 116_444_736_000_000_000  # 1970, in units of 100 ns since 1601


class _BasicInformation(ctypes.Structure):
    """FILE_BASIC_INFO: four times and the attributes."""

    _fields_ = (
        ("created", ctypes.c_int64),
        ("accessed", ctypes.c_int64),
        ("written", ctypes.c_int64),
        ("changed", ctypes.c_int64),
        ("attributes", ctypes.c_uint32),
    )


if sys.platform == "win32":
    import msvcrt

    _ask = ctypes.WinDLL("kernel32").GetFileInformationByHandleEx
    _ask.restype, _ask.argtypes = ctypes.c_int32, (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32)

    def change_time_ns(file: str | os.PathLike[str] | int) -> int | None:
        """Return the time of a file's last change; ``None`` where it is not told, as on FAT and some network disks."""
        if not isinstance(file, int):
            try:
                descriptor = os.open(file, os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT)
            except OSError:  # it may not be read
                return None
            try:
                return change_time_ns(descriptor)
            finally:
                os.close(descriptor)
        found = _BasicInformation()
        handle = msvcrt.get_osfhandle(file)
        told = _ask(handle, _BASIC_INFORMATION, ctypes.byref(found), ctypes.sizeof(found))
        return (found.changed - _EPOCH) * 100 if told and found.changed else None
