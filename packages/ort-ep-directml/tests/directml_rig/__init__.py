"""The real DirectML on a device made of Python: what the tests of this package run where there is no Windows.

DirectML also exists as a Linux library, for WSL. Here it gets a Direct3D device whose memory is this process's and
whose shaders, which DirectML brings as DXIL, are compiled for the processor and run. Everything above the driver is
what runs on Windows: DirectML, and all of ``ort_ep_directml``.
"""
