"""The protocol's messages and methods, as one table of field numbers.

The messages live in a descriptor pool of their own: a program may hold a client's copies of the same names beside them.
Source: the Open Inference Protocol's gRPC service and Triton's extensions of it (package ``inference``).
"""

MESSAGES = """
ServerLiveRequest
ServerLiveResponse: 1 live bool
ServerReadyRequest
ServerReadyResponse: 1 ready bool
ModelReadyRequest: 1 name string; 2 version string
ModelReadyResponse: 1 ready bool
ServerMetadataRequest
ServerMetadataResponse: 1 name string; 2 version string; 3 extensions string*
ModelMetadataRequest: 1 name string; 2 version string
ModelMetadataResponse: 1 name string; 2 versions string*; 3 platform string; \
4 inputs .TensorMetadata*; 5 outputs .TensorMetadata*
ModelMetadataResponse.TensorMetadata: 1 name string; 2 datatype string; 3 shape int64*
InferParameter: 1 bool_param bool|; 2 int64_param int64|; 3 string_param string|; 4 double_param double|; \
5 uint64_param uint64|
InferTensorContents: 1 bool_contents bool*; 2 int_contents int32*; 3 int64_contents int64*; 4 uint_contents uint32*; \
5 uint64_contents uint64*; 6 fp32_contents float*; 7 fp64_contents double*; 8 bytes_contents bytes*
ModelInferRequest: 1 model_name string; 2 model_version string; 3 id string; 4 parameters {InferParameter}; \
5 inputs .InferInputTensor*; 6 outputs .InferRequestedOutputTensor*; 7 raw_input_contents bytes*
ModelInferRequest.InferInputTensor: 1 name string; 2 datatype string; 3 shape int64*; 4 parameters {InferParameter}; \
5 contents InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: 1 name string; 2 parameters {InferParameter}
ModelInferResponse: 1 model_name string; 2 model_version string; 3 id string; 4 parameters {InferParameter}; \
5 outputs .InferOutputTensor*; 6 raw_output_contents bytes*
ModelInferResponse.InferOutputTensor: 1 name string; 2 datatype string; 3 shape int64*; 4 parameters {InferParameter}; \
5 contents InferTensorContents
ModelStreamInferResponse: 1 error_message string; 2 infer_response ModelInferResponse
ModelConfigRequest: 1 name string; 2 version string
ModelConfigResponse: 1 config ModelConfig
ModelStatisticsRequest: 1 name string; 2 version string
StatisticDuration: 1 count uint64; 2 ns uint64
InferStatistics: 1 success StatisticDuration; 2 fail StatisticDuration; 3 queue StatisticDuration; \
4 compute_input StatisticDuration; 5 compute_infer StatisticDuration; 6 compute_output StatisticDuration; \
7 cache_hit StatisticDuration; 8 cache_miss StatisticDuration
InferBatchStatistics: 1 batch_size uint64; 2 compute_input StatisticDuration; 3 compute_infer StatisticDuration; \
4 compute_output StatisticDuration
MemoryUsage: 1 type string; 2 id int64; 3 byte_size uint64
ModelStatistics: 1 name string; 2 version string; 3 last_inference uint64; 4 inference_count uint64; \
5 execution_count uint64; 6 inference_stats InferStatistics; \
7 batch_stats InferBatchStatistics*; 8 memory_usage MemoryUsage*
ModelStatisticsResponse: 1 model_stats ModelStatistics*
ModelRepositoryParameter: 1 bool_param bool|; 2 int64_param int64|; 3 string_param string|; 4 bytes_param bytes|
RepositoryIndexRequest: 1 repository_name string; 2 ready bool
RepositoryIndexResponse: 1 models .ModelIndex*
RepositoryIndexResponse.ModelIndex: 1 name string; 2 version string; 3 state string; 4 reason string
RepositoryModelLoadRequest: 1 repository_name string; 2 model_name string; 3 parameters {ModelRepositoryParameter}
RepositoryModelLoadResponse
RepositoryModelUnloadRequest: 1 repository_name string; 2 model_name string; 3 parameters {ModelRepositoryParameter}
RepositoryModelUnloadResponse
SystemSharedMemoryStatusRequest: 1 name string
SystemSharedMemoryStatusResponse: 1 regions {.RegionStatus}
SystemSharedMemoryStatusResponse.RegionStatus: 1 name string; 2 key string; 3 offset uint64; 4 byte_size uint64
SystemSharedMemoryRegisterRequest: 1 name string; 2 key string; 3 offset uint64; 4 byte_size uint64
SystemSharedMemoryRegisterResponse
SystemSharedMemoryUnregisterRequest: 1 name string
SystemSharedMemoryUnregisterResponse
CudaSharedMemoryStatusRequest: 1 name string
CudaSharedMemoryStatusResponse: 1 regions {.RegionStatus}
CudaSharedMemoryStatusResponse.RegionStatus: 1 name string; 2 device_id uint64; 3 byte_size uint64
CudaSharedMemoryRegisterRequest: 1 name string; 2 raw_handle bytes; 3 device_id int64; 4 byte_size uint64
CudaSharedMemoryRegisterResponse
CudaSharedMemoryUnregisterRequest: 1 name string
CudaSharedMemoryUnregisterResponse
TraceSettingRequest: 1 settings {.SettingValue}; 2 model_name string
TraceSettingRequest.SettingValue: 1 value string*
TraceSettingResponse: 1 settings {.SettingValue}
TraceSettingResponse.SettingValue: 1 value string*
LogSettingsRequest: 1 settings {.SettingValue}
LogSettingsRequest.SettingValue: 1 bool_param bool|; 2 uint32_param uint32|; 3 string_param string|
LogSettingsResponse: 1 settings {.SettingValue}
LogSettingsResponse.SettingValue: 1 bool_param bool|; 2 uint32_param uint32|; 3 string_param string|
ModelConfig: 1 name string; 2 platform string; 3 version_policy ModelVersionPolicy; 4 max_batch_size int32; \
5 input ModelInput*; 6 output ModelOutput*; 7 instance_group ModelInstanceGroup*; 8 default_model_filename string; \
11 dynamic_batching ModelDynamicBatching; 14 parameters {ModelParameter}; \
16 model_warmup ModelWarmup*; 17 backend string
ModelTensorReshape: 1 shape int64*
ModelInput: 1 name string; 2 data_type DataType; 4 dims int64*; 5 reshape ModelTensorReshape
ModelOutput: 1 name string; 2 data_type DataType; 3 dims int64*; 5 reshape ModelTensorReshape
ModelVersionPolicy: 1 latest .Latest|; 2 all .All|; 3 specific .Specific|
ModelVersionPolicy.Latest: 1 num_versions uint32
ModelVersionPolicy.All
ModelVersionPolicy.Specific: 1 versions int64*
ModelInstanceGroup: 1 name string; 2 count int32; 4 kind InstanceKind; 3 gpus int32*
ModelQueuePolicy: 2 default_timeout_microseconds uint64; 3 allow_timeout_override bool; 4 max_queue_size uint32
ModelDynamicBatching: 1 preferred_batch_size int32*; 2 max_queue_delay_microseconds uint64; 3 preserve_ordering bool; \
4 priority_levels uint64; 5 default_priority_level uint64; 6 default_queue_policy ModelQueuePolicy
ModelParameter: 1 string_value string
ModelWarmup: 1 name string; 2 batch_size uint32; 3 inputs {.Input}; 4 count uint32
ModelWarmup.Input: 1 data_type DataType; 2 dims int64*; 3 zero_data bool|; 4 random_data bool|; \
5 input_data_file string|
"""

ENUMS = {
    "DataType": (
        "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8",
        "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
    ),
    "InstanceKind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
}  # fmt: skip

SERVICE = "inference.GRPCInferenceService"
METHODS = (  # each takes NAMERequest and gives NAMEResponse
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelConfig",
    "ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister", "TraceSetting", "LogSettings",
)  # fmt: skip
STREAM = "ModelStreamInfer"  # takes ModelInferRequest, gives ModelStreamInferResponse, both in streams
