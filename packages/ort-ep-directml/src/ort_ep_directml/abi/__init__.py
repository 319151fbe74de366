"""The binary interfaces of Direct3D 12, DirectML, DXCore and DXGI: structs, method tables, calls. Opens no library."""
