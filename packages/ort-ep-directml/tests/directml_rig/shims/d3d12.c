/* libd3d12.so of the rig: what DirectML and its caller look up by name, handed on to Python. */
#include <stddef.h>
#include <stdint.h>

typedef int32_t (*create_device)(void *adapter, uint32_t level, const void *iid, void **device);
typedef int32_t (*serialize)(const void *desc, void **blob, void **error);

static create_device on_create_device;
static serialize on_serialize;

#define NOT_SET ((int32_t)0x80004005)

void rig_set_d3d12(create_device create, serialize signature) {
  on_create_device = create;
  on_serialize = signature;
}

int32_t D3D12CreateDevice(void *adapter, uint32_t level, const void *iid, void **device) {
  return on_create_device ? on_create_device(adapter, level, iid, device) : NOT_SET;
}

int32_t D3D12SerializeVersionedRootSignature(const void *desc, void **blob, void **error) {
  return on_serialize ? on_serialize(desc, blob, error) : NOT_SET;
}
