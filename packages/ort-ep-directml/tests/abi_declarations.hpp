// What the tests hold the ctypes declarations to: structs and interfaces as a C++ compiler lays them out, with the
// fields, the order of methods and the types that the documentation of Direct3D 12, DirectML, DXCore and DXGI states.
// Methods that are declared `void Name()` only hold their slot. One method a line: the test reads this file too.
#include <cstddef>
#include <cstdint>

typedef uint8_t BYTE;
typedef uint16_t WCHAR16;
typedef uint32_t UINT;
typedef int32_t INT;
typedef uint64_t UINT64;
typedef uint16_t UINT16;
typedef float FLOAT;
typedef size_t SIZE_T;
typedef int32_t HRESULT;
typedef int32_t LONG;
typedef uint32_t ENUM;

// ---------------------------------------------------------------- structs
struct GUID { uint32_t Data1; uint16_t Data2; uint16_t Data3; BYTE Data4[8]; };
struct LUID { uint32_t LowPart; LONG HighPart; };
struct DXGI_SAMPLE_DESC { UINT Count; UINT Quality; };
struct D3D12_COMMAND_QUEUE_DESC { ENUM Type; INT Priority; ENUM Flags; UINT NodeMask; };
struct D3D12_DESCRIPTOR_HEAP_DESC { ENUM Type; UINT NumDescriptors; ENUM Flags; UINT NodeMask; };
struct D3D12_CPU_DESCRIPTOR_HANDLE { SIZE_T ptr; };
struct D3D12_GPU_DESCRIPTOR_HANDLE { UINT64 ptr; };
struct D3D12_HEAP_PROPERTIES { ENUM Type; ENUM CPUPageProperty; ENUM MemoryPoolPreference; UINT CreationNodeMask; UINT VisibleNodeMask; };
struct D3D12_RESOURCE_DESC { ENUM Dimension; UINT64 Alignment; UINT64 Width; UINT Height; UINT16 DepthOrArraySize; UINT16 MipLevels; ENUM Format; DXGI_SAMPLE_DESC SampleDesc; ENUM Layout; ENUM Flags; };
struct D3D12_RANGE { SIZE_T Begin; SIZE_T End; };
struct D3D12_RESOURCE_TRANSITION_BARRIER { void* pResource; UINT Subresource; ENUM StateBefore; ENUM StateAfter; };
struct D3D12_RESOURCE_ALIASING_BARRIER { void* pResourceBefore; void* pResourceAfter; };
struct D3D12_RESOURCE_UAV_BARRIER { void* pResource; };
struct D3D12_RESOURCE_BARRIER { ENUM Type; ENUM Flags; union { D3D12_RESOURCE_TRANSITION_BARRIER Transition; D3D12_RESOURCE_ALIASING_BARRIER Aliasing; D3D12_RESOURCE_UAV_BARRIER UAV; }; };
struct DXGI_ADAPTER_DESC1 { WCHAR16 Description[128]; UINT VendorId; UINT DeviceId; UINT SubSysId; UINT Revision; SIZE_T DedicatedVideoMemory; SIZE_T DedicatedSystemMemory; SIZE_T SharedSystemMemory; LUID AdapterLuid; UINT Flags; };
struct DML_BUFFER_TENSOR_DESC { ENUM DataType; ENUM Flags; UINT DimensionCount; const UINT* Sizes; const UINT* Strides; UINT64 TotalTensorSizeInBytes; UINT GuaranteedBaseOffsetAlignment; };
struct DML_TENSOR_DESC { ENUM Type; const void* Desc; };
struct DML_OPERATOR_DESC { ENUM Type; const void* Desc; };
struct DML_SIZE_2D { UINT Width; UINT Height; };
struct DML_SCALE_BIAS { FLOAT Scale; FLOAT Bias; };
union DML_SCALAR_UNION { BYTE Bytes[8]; int8_t Int8; uint8_t UInt8; int16_t Int16; uint16_t UInt16; int32_t Int32; uint32_t UInt32; int64_t Int64; uint64_t UInt64; float Float32; double Float64; };
struct DML_GRAPH_NODE_DESC { ENUM Type; const void* Desc; };
struct DML_OPERATOR_GRAPH_NODE_DESC { void* Operator; const char* Name; };
struct DML_CONSTANT_DATA_GRAPH_NODE_DESC { const void* Data; SIZE_T DataSize; const char* Name; };
struct DML_GRAPH_EDGE_DESC { ENUM Type; const void* Desc; };
struct DML_INPUT_GRAPH_EDGE_DESC { UINT GraphInputIndex; UINT ToNodeIndex; UINT ToNodeInputIndex; const char* Name; };
struct DML_OUTPUT_GRAPH_EDGE_DESC { UINT FromNodeIndex; UINT FromNodeOutputIndex; UINT GraphOutputIndex; const char* Name; };
struct DML_INTERMEDIATE_GRAPH_EDGE_DESC { UINT FromNodeIndex; UINT FromNodeOutputIndex; UINT ToNodeIndex; UINT ToNodeInputIndex; const char* Name; };
struct DML_GRAPH_DESC { UINT InputCount; UINT OutputCount; UINT NodeCount; const void* Nodes; UINT InputEdgeCount; const void* InputEdges; UINT OutputEdgeCount; const void* OutputEdges; UINT IntermediateEdgeCount; const void* IntermediateEdges; };
struct DML_BINDING_PROPERTIES { UINT RequiredDescriptorCount; UINT64 TemporaryResourceSize; UINT64 PersistentResourceSize; };
struct DML_BINDING_TABLE_DESC { void* Dispatchable; D3D12_CPU_DESCRIPTOR_HANDLE CPUDescriptorHandle; D3D12_GPU_DESCRIPTOR_HANDLE GPUDescriptorHandle; UINT SizeInDescriptors; };
struct DML_BINDING_DESC { ENUM Type; const void* Desc; };
struct DML_BUFFER_BINDING { void* Buffer; UINT64 Offset; UINT64 SizeInBytes; };
struct DML_BUFFER_ARRAY_BINDING { UINT BindingCount; const void* Bindings; };
struct DML_FEATURE_QUERY_FEATURE_LEVELS { UINT RequestedFeatureLevelCount; const ENUM* RequestedFeatureLevels; };

// ---------------------------------------------------------------- interfaces
struct IUnknown {
  virtual HRESULT QueryInterface(const GUID* riid, void** object) = 0;
  virtual uint32_t AddRef() = 0;
  virtual uint32_t Release() = 0;
};

struct ID3D12Object : IUnknown {
  virtual HRESULT GetPrivateData(const GUID* guid, UINT* size, void* data) = 0;
  virtual HRESULT SetPrivateData(const GUID* guid, UINT size, const void* data) = 0;
  virtual HRESULT SetPrivateDataInterface(const GUID* guid, const void* data) = 0;
  virtual HRESULT SetName(const void* name) = 0;
};

struct ID3D12DeviceChild : ID3D12Object {
  virtual HRESULT GetDevice(const GUID* riid, void** device) = 0;
};

struct ID3D12Pageable : ID3D12DeviceChild {};

struct ID3D12Device : ID3D12Object {
  virtual UINT GetNodeCount() = 0;
  virtual HRESULT CreateCommandQueue(const void* desc, const GUID* riid, void** queue) = 0;
  virtual HRESULT CreateCommandAllocator(ENUM type, const GUID* riid, void** allocator) = 0;
  virtual void CreateGraphicsPipelineState() = 0;
  virtual HRESULT CreateComputePipelineState(const void* desc, const GUID* riid, void** state) = 0;
  virtual HRESULT CreateCommandList(UINT mask, ENUM type, void* allocator, void* state, const GUID* riid, void** list) = 0;
  virtual HRESULT CheckFeatureSupport(ENUM feature, void* data, UINT size) = 0;
  virtual HRESULT CreateDescriptorHeap(const void* desc, const GUID* riid, void** heap) = 0;
  virtual UINT GetDescriptorHandleIncrementSize(ENUM type) = 0;
  virtual HRESULT CreateRootSignature(UINT mask, const void* blob, SIZE_T length, const GUID* riid, void** signature) = 0;
  virtual void CreateConstantBufferView(const void* desc, D3D12_CPU_DESCRIPTOR_HANDLE where) = 0;
  virtual void CreateShaderResourceView(void* resource, const void* desc, D3D12_CPU_DESCRIPTOR_HANDLE where) = 0;
  virtual void CreateUnorderedAccessView(void* resource, void* counter, const void* desc, D3D12_CPU_DESCRIPTOR_HANDLE where) = 0;
  virtual void CreateRenderTargetView() = 0;
  virtual void CreateDepthStencilView() = 0;
  virtual void CreateSampler() = 0;
  virtual void CopyDescriptors(UINT targets, const void* starts, const void* sizes, UINT sources, const void* from, const void* counts, ENUM type) = 0;
  virtual void CopyDescriptorsSimple(UINT count, D3D12_CPU_DESCRIPTOR_HANDLE to, D3D12_CPU_DESCRIPTOR_HANDLE from, ENUM type) = 0;
  virtual void GetResourceAllocationInfo() = 0;
  virtual D3D12_HEAP_PROPERTIES GetCustomHeapProperties(UINT mask, ENUM type) = 0;
  virtual HRESULT CreateCommittedResource(const void* heap, ENUM flags, const void* desc, ENUM state, const void* clear, const GUID* riid, void** resource) = 0;
  virtual HRESULT CreateHeap(const void* desc, const GUID* riid, void** heap) = 0;
  virtual HRESULT CreatePlacedResource(void* heap, UINT64 offset, const void* desc, ENUM state, const void* clear, const GUID* riid, void** resource) = 0;
  virtual void CreateReservedResource() = 0;
  virtual void CreateSharedHandle() = 0;
  virtual void OpenSharedHandle() = 0;
  virtual void OpenSharedHandleByName() = 0;
  virtual HRESULT MakeResident(UINT count, const void* objects) = 0;
  virtual HRESULT Evict(UINT count, const void* objects) = 0;
  virtual HRESULT CreateFence(UINT64 value, ENUM flags, const GUID* riid, void** fence) = 0;
  virtual HRESULT GetDeviceRemovedReason() = 0;
  virtual void GetCopyableFootprints() = 0;
  virtual void CreateQueryHeap() = 0;
  virtual void SetStablePowerState() = 0;
  virtual void CreateCommandSignature() = 0;
  virtual void GetResourceTiling() = 0;
  virtual LUID GetAdapterLuid() = 0;
};

struct ID3D12CommandQueue : ID3D12Pageable {
  virtual void UpdateTileMappings() = 0;
  virtual void CopyTileMappings() = 0;
  virtual void ExecuteCommandLists(UINT count, const void* lists) = 0;
  virtual void SetMarker(UINT metadata, const void* data, UINT size) = 0;
  virtual void BeginEvent(UINT metadata, const void* data, UINT size) = 0;
  virtual void EndEvent() = 0;
  virtual HRESULT Signal(void* fence, UINT64 value) = 0;
  virtual HRESULT Wait(void* fence, UINT64 value) = 0;
  virtual HRESULT GetTimestampFrequency(UINT64* frequency) = 0;
  virtual HRESULT GetClockCalibration(UINT64* gpu, UINT64* cpu) = 0;
  virtual D3D12_COMMAND_QUEUE_DESC GetDesc() = 0;
};

struct ID3D12CommandAllocator : ID3D12Pageable {
  virtual HRESULT Reset() = 0;
};

struct ID3D12Fence : ID3D12Pageable {
  virtual UINT64 GetCompletedValue() = 0;
  virtual HRESULT SetEventOnCompletion(UINT64 value, void* event) = 0;
  virtual HRESULT Signal(UINT64 value) = 0;
};

struct ID3D12DescriptorHeap : ID3D12Pageable {
  virtual D3D12_DESCRIPTOR_HEAP_DESC GetDesc() = 0;
  virtual D3D12_CPU_DESCRIPTOR_HANDLE GetCPUDescriptorHandleForHeapStart() = 0;
  virtual D3D12_GPU_DESCRIPTOR_HANDLE GetGPUDescriptorHandleForHeapStart() = 0;
};

struct ID3D12Resource : ID3D12Pageable {
  virtual HRESULT Map(UINT subresource, const void* read, void** data) = 0;
  virtual void Unmap(UINT subresource, const void* written) = 0;
  virtual D3D12_RESOURCE_DESC GetDesc() = 0;
  virtual UINT64 GetGPUVirtualAddress() = 0;
  virtual void WriteToSubresource() = 0;
  virtual void ReadFromSubresource() = 0;
  virtual HRESULT GetHeapProperties(void* properties, void* flags) = 0;
};

struct ID3D12CommandList : ID3D12DeviceChild {
  virtual ENUM GetType() = 0;
};

struct ID3D12GraphicsCommandList : ID3D12CommandList {
  virtual HRESULT Close() = 0;
  virtual HRESULT Reset(void* allocator, void* state) = 0;
  virtual void ClearState(void* state) = 0;
  virtual void DrawInstanced() = 0;
  virtual void DrawIndexedInstanced() = 0;
  virtual void Dispatch(UINT x, UINT y, UINT z) = 0;
  virtual void CopyBufferRegion(void* to, UINT64 to_offset, void* from, UINT64 from_offset, UINT64 size) = 0;
  virtual void CopyTextureRegion() = 0;
  virtual void CopyResource(void* to, void* from) = 0;
  virtual void CopyTiles() = 0;
  virtual void ResolveSubresource() = 0;
  virtual void IASetPrimitiveTopology() = 0;
  virtual void RSSetViewports() = 0;
  virtual void RSSetScissorRects() = 0;
  virtual void OMSetBlendFactor() = 0;
  virtual void OMSetStencilRef() = 0;
  virtual void SetPipelineState(void* state) = 0;
  virtual void ResourceBarrier(UINT count, const void* barriers) = 0;
  virtual void ExecuteBundle() = 0;
  virtual void SetDescriptorHeaps(UINT count, const void* heaps) = 0;
  virtual void SetComputeRootSignature(void* signature) = 0;
  virtual void SetGraphicsRootSignature() = 0;
  virtual void SetComputeRootDescriptorTable(UINT index, D3D12_GPU_DESCRIPTOR_HANDLE base) = 0;
  virtual void SetGraphicsRootDescriptorTable() = 0;
  virtual void SetComputeRoot32BitConstant(UINT index, UINT value, UINT offset) = 0;
  virtual void SetGraphicsRoot32BitConstant() = 0;
  virtual void SetComputeRoot32BitConstants(UINT index, UINT count, const void* values, UINT offset) = 0;
  virtual void SetGraphicsRoot32BitConstants() = 0;
  virtual void SetComputeRootConstantBufferView(UINT index, UINT64 address) = 0;
  virtual void SetGraphicsRootConstantBufferView() = 0;
  virtual void SetComputeRootShaderResourceView(UINT index, UINT64 address) = 0;
  virtual void SetGraphicsRootShaderResourceView() = 0;
  virtual void SetComputeRootUnorderedAccessView(UINT index, UINT64 address) = 0;
  virtual void SetGraphicsRootUnorderedAccessView() = 0;
  virtual void IASetIndexBuffer() = 0;
  virtual void IASetVertexBuffers() = 0;
  virtual void SOSetTargets() = 0;
  virtual void OMSetRenderTargets() = 0;
  virtual void ClearDepthStencilView() = 0;
  virtual void ClearRenderTargetView() = 0;
  virtual void ClearUnorderedAccessViewUint(D3D12_GPU_DESCRIPTOR_HANDLE gpu, D3D12_CPU_DESCRIPTOR_HANDLE cpu, void* resource, const void* values, UINT rects, const void* rect) = 0;
  virtual void ClearUnorderedAccessViewFloat(D3D12_GPU_DESCRIPTOR_HANDLE gpu, D3D12_CPU_DESCRIPTOR_HANDLE cpu, void* resource, const void* values, UINT rects, const void* rect) = 0;
  virtual void DiscardResource() = 0;
  virtual void BeginQuery() = 0;
  virtual void EndQuery() = 0;
  virtual void ResolveQueryData() = 0;
  virtual void SetPredication() = 0;
  virtual void SetMarker(UINT metadata, const void* data, UINT size) = 0;
  virtual void BeginEvent(UINT metadata, const void* data, UINT size) = 0;
  virtual void EndEvent() = 0;
  virtual void ExecuteIndirect() = 0;
};

struct IDMLObject : IUnknown {
  virtual HRESULT GetPrivateData(const GUID* guid, UINT* size, void* data) = 0;
  virtual HRESULT SetPrivateData(const GUID* guid, UINT size, const void* data) = 0;
  virtual HRESULT SetPrivateDataInterface(const GUID* guid, void* data) = 0;
  virtual HRESULT SetName(const void* name) = 0;
};

struct IDMLDevice : IDMLObject {
  virtual HRESULT CheckFeatureSupport(ENUM feature, UINT asked, const void* query, UINT size, void* support) = 0;
  virtual HRESULT CreateOperator(const void* desc, const GUID* riid, void** object) = 0;
  virtual HRESULT CompileOperator(void* op, ENUM flags, const GUID* riid, void** object) = 0;
  virtual HRESULT CreateOperatorInitializer(UINT count, const void* operators, const GUID* riid, void** object) = 0;
  virtual HRESULT CreateCommandRecorder(const GUID* riid, void** object) = 0;
  virtual HRESULT CreateBindingTable(const void* desc, const GUID* riid, void** object) = 0;
  virtual HRESULT Evict(UINT count, const void* objects) = 0;
  virtual HRESULT MakeResident(UINT count, const void* objects) = 0;
  virtual HRESULT GetDeviceRemovedReason() = 0;
  virtual HRESULT GetParentDevice(const GUID* riid, void** object) = 0;
};

struct IDMLDevice1 : IDMLDevice {
  virtual HRESULT CompileGraph(const void* desc, ENUM flags, const GUID* riid, void** object) = 0;
};

struct IDMLDeviceChild : IDMLObject {
  virtual HRESULT GetDevice(const GUID* riid, void** object) = 0;
};

struct IDMLPageable : IDMLDeviceChild {};

struct IDMLOperator : IDMLDeviceChild {};

struct IDMLDispatchable : IDMLPageable {
  virtual DML_BINDING_PROPERTIES GetBindingProperties() = 0;
};

struct IDMLCompiledOperator : IDMLDispatchable {};

struct IDMLOperatorInitializer : IDMLDispatchable {
  virtual HRESULT Reset(UINT count, const void* operators) = 0;
};

struct IDMLBindingTable : IDMLDeviceChild {
  virtual void BindInputs(UINT count, const void* bindings) = 0;
  virtual void BindOutputs(UINT count, const void* bindings) = 0;
  virtual void BindTemporaryResource(const void* binding) = 0;
  virtual void BindPersistentResource(const void* binding) = 0;
  virtual HRESULT Reset(const void* desc) = 0;
};

struct IDMLCommandRecorder : IDMLDeviceChild {
  virtual void RecordDispatch(void* list, void* dispatchable, void* bindings) = 0;
};

struct IDXCoreAdapter : IUnknown {
  virtual bool IsValid() = 0;
  virtual bool IsAttributeSupported(const GUID* attribute) = 0;
  virtual bool IsPropertySupported(ENUM property) = 0;
  virtual HRESULT GetProperty(ENUM property, SIZE_T size, void* data) = 0;
  virtual HRESULT GetPropertySize(ENUM property, SIZE_T* size) = 0;
  virtual bool IsQueryStateSupported(ENUM state) = 0;
  virtual HRESULT QueryState(ENUM state, SIZE_T details, const void* detail, SIZE_T size, void* data) = 0;
  virtual bool IsSetStateSupported(ENUM state) = 0;
  virtual HRESULT SetState(ENUM state, SIZE_T details, const void* detail, SIZE_T size, const void* data) = 0;
  virtual HRESULT GetFactory(const GUID* riid, void** factory) = 0;
};

struct IDXCoreAdapterList : IUnknown {
  virtual HRESULT GetAdapter(uint32_t index, const GUID* riid, void** adapter) = 0;
  virtual uint32_t GetAdapterCount() = 0;
  virtual bool IsStale() = 0;
  virtual HRESULT GetFactory(const GUID* riid, void** factory) = 0;
  virtual HRESULT Sort(uint32_t count, const ENUM* preferences) = 0;
  virtual bool IsAdapterPreferenceSupported(ENUM preference) = 0;
};

struct IDXCoreAdapterFactory : IUnknown {
  virtual HRESULT CreateAdapterList(uint32_t count, const GUID* attributes, const GUID* riid, void** list) = 0;
  virtual HRESULT GetAdapterByLuid(const LUID* luid, const GUID* riid, void** adapter) = 0;
  virtual bool IsNotificationTypeSupported(ENUM type) = 0;
  virtual void RegisterEventNotification() = 0;
  virtual HRESULT UnregisterEventNotification(uint32_t cookie) = 0;
};

struct IDXGIObject : IUnknown {
  virtual HRESULT SetPrivateData(const GUID* guid, UINT size, const void* data) = 0;
  virtual HRESULT SetPrivateDataInterface(const GUID* guid, const void* data) = 0;
  virtual HRESULT GetPrivateData(const GUID* guid, UINT* size, void* data) = 0;
  virtual HRESULT GetParent(const GUID* riid, void** parent) = 0;
};

struct IDXGIAdapter : IDXGIObject {
  virtual HRESULT EnumOutputs(UINT index, void** output) = 0;
  virtual HRESULT GetDesc(void* desc) = 0;
  virtual HRESULT CheckInterfaceSupport(const GUID* guid, LONG* version) = 0;
};

struct IDXGIAdapter1 : IDXGIAdapter {
  virtual HRESULT GetDesc1(void* desc) = 0;
};

struct IDXGIFactory : IDXGIObject {
  virtual HRESULT EnumAdapters(UINT index, void** adapter) = 0;
  virtual void MakeWindowAssociation() = 0;
  virtual void GetWindowAssociation() = 0;
  virtual void CreateSwapChain() = 0;
  virtual void CreateSoftwareAdapter() = 0;
};

struct IDXGIFactory1 : IDXGIFactory {
  virtual HRESULT EnumAdapters1(UINT index, void** adapter) = 0;
  virtual UINT IsCurrent() = 0;
};
