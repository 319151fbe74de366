"""DeviceHolder: the device of an adapter, made when it is first needed, and made anew once it was lost.

Direct3D gives a process one device for each adapter, and gives the lost one again until every reference of it is back.
So sessions on one adapter share a holder, nobody may be in the middle of a run when it is replaced, and all that was
made on it is given back first.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ort_core.plugin import EPFail
from ort_ep_directml.abi.hresults import HResultError
from ort_ep_directml.adapters import choose_adapter
from ort_ep_directml.libraries import Libraries
from ort_ep_directml.options import DmlOptions
from ort_ep_directml.runtime.device import DmlDevice

log = logging.getLogger(__name__)


class DeviceHolder:
    """The device that the sessions of a process share. Safe from many threads.

    Args:
        build: makes a device.
    """

    def __init__(self, build: Callable[[], DmlDevice]) -> None:
        self._build = build
        self._device: DmlDevice | None = None
        self._users = 0
        self._changed = threading.Condition()

    @contextmanager
    def use(self) -> Iterator[DmlDevice]:
        """Give the device; it stays until the block is left.

        Raises:
            HResultError: it could not be made.
            EPFail: likewise.
            InvalidArgument: the options name no adapter.
        """
        with self._changed:
            if self._device is None:
                self._device = self._build()
            device = self._device
            self._users += 1
        try:
            yield device
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def replace(self, lost: DmlDevice, reason: str) -> None:
        """Give a lost device back and make another; nothing where somebody else has done so. Not within ``use``.

        Raises:
            EPFail: no other could be made.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._users == 0)  # whoever runs on the lost device fails, and leaves
            if self._device is not lost:
                return
            text = lost.text()
            self._device = None
            lost.close()
            gc.collect()  # sessions that nobody refers to any more hold references, too, until they are collected
            try:
                self._device = self._build()
            except HResultError as error:
                raise EPFail(
                    f"{text} was lost ({reason}) and could not be made anew: {error}. Where something else in "
                    "this process uses the same adapter, close it first"
                ) from error
        log.warning("%s was lost (%s): it was made anew, and the run is repeated", text, reason)


def shared_holder(libraries: Libraries, options: DmlOptions) -> DeviceHolder:
    """Return the holder of the adapter that the options choose; it lives as long as somebody uses it.

    Raises:
        InvalidArgument: they choose none.
        HResultError: the system could not list adapters.
    """

    def build() -> DmlDevice:
        return DmlDevice(libraries, choose_adapter(libraries, options))  # asked anew: a driver brings a new number

    luid = choose_adapter(libraries, options).luid
    with libraries.lock:
        found = libraries.holders.get(luid)
        if found is None:
            found = libraries.holders[luid] = DeviceHolder(build)
        return found
