/* libdxcore.so of the rig: the one function that DXCore exports, handed on to Python. */
#include <stddef.h>
#include <stdint.h>

typedef int32_t (*create_factory)(const void *iid, void **factory);

static create_factory on_create_factory;

void rig_set_dxcore(create_factory create) { on_create_factory = create; }

int32_t DXCoreCreateAdapterFactory(const void *iid, void **factory) {
  return on_create_factory ? on_create_factory(iid, factory) : (int32_t)0x80004005;
}
