package cuda

// fn is the number of a driver function.
type fn uint8

const (
	fInit fn = iota
	fGetErrorName
	fGetErrorString
	fDriverGetVersion

	fDeviceGetCount
	fDeviceGet
	fDeviceGetName
	fDeviceGetUUID
	fDeviceTotalMem
	fDeviceGetAttribute
	fDeviceGetPCIBusID
	fDeviceCanAccessPeer
	fDeviceGetP2PAttribute
	fPrimaryCtxRetain
	fPrimaryCtxRelease
	fCtxSetCurrent
	fCtxGetCurrent
	fCtxSynchronize
	fCtxEnablePeerAccess

	fMemAlloc
	fMemFree
	fMemGetInfo
	fMemHostAlloc
	fMemFreeHost
	fMemHostRegister
	fMemHostUnregister
	fMemHostGetDevicePointer
	fPointerGetAttribute
	fMemcpyAsync
	fMemcpy2DAsync
	fMemcpyBatchAsync
	fMemcpyBatchAsyncV2
	fMemsetD8Async
	fMemPoolCreate
	fMemPoolDestroy
	fMemAllocFromPoolAsync
	fMemFreeAsync

	fMemGetAllocationGranularity
	fMemAddressReserve
	fMemAddressFree
	fMemCreate
	fMemRelease
	fMemMap
	fMemUnmap
	fMemSetAccess
	fMemExportToShareableHandle
	fMemImportFromShareableHandle
	fMemGetHandleForAddressRange

	fIpcGetMemHandle
	fIpcOpenMemHandle
	fIpcCloseMemHandle

	fStreamCreateWithPriority
	fStreamDestroy
	fStreamQuery
	fStreamSynchronize
	fStreamWaitEvent
	fStreamWriteValue32
	fStreamWriteValue64
	fStreamWaitValue32
	fStreamWaitValue64
	fStreamBatchMemOp
	fStreamBeginCapture
	fStreamEndCapture
	fStreamIsCapturing
	fThreadExchangeStreamCaptureMode
	fLaunchHostFunc

	fEventCreate
	fEventDestroy
	fEventRecord
	fEventQuery
	fEventSynchronize
	fEventElapsedTime

	fModuleLoadData
	fModuleUnload
	fModuleGetFunction
	fModuleGetGlobal
	fFuncSetAttribute
	fLaunchKernel
	fLaunchKernelEx

	fGraphInstantiate
	fGraphLaunch
	fGraphDestroy
	fGraphExecDestroy

	numFns
)

// fns are the names that the library exports. Those in optional may be missing
// in a driver; calling one gives ErrUnsupported.
var fns = [numFns]string{
	fInit:             "cuInit",
	fGetErrorName:     "cuGetErrorName",
	fGetErrorString:   "cuGetErrorString",
	fDriverGetVersion: "cuDriverGetVersion",

	fDeviceGetCount:        "cuDeviceGetCount",
	fDeviceGet:             "cuDeviceGet",
	fDeviceGetName:         "cuDeviceGetName",
	fDeviceGetUUID:         "cuDeviceGetUuid_v2",
	fDeviceTotalMem:        "cuDeviceTotalMem_v2",
	fDeviceGetAttribute:    "cuDeviceGetAttribute",
	fDeviceGetPCIBusID:     "cuDeviceGetPCIBusId",
	fDeviceCanAccessPeer:   "cuDeviceCanAccessPeer",
	fDeviceGetP2PAttribute: "cuDeviceGetP2PAttribute",
	fPrimaryCtxRetain:      "cuDevicePrimaryCtxRetain",
	fPrimaryCtxRelease:     "cuDevicePrimaryCtxRelease_v2",
	fCtxSetCurrent:         "cuCtxSetCurrent",
	fCtxGetCurrent:         "cuCtxGetCurrent",
	fCtxSynchronize:        "cuCtxSynchronize",
	fCtxEnablePeerAccess:   "cuCtxEnablePeerAccess",

	fMemAlloc:                "cuMemAlloc_v2",
	fMemFree:                 "cuMemFree_v2",
	fMemGetInfo:              "cuMemGetInfo_v2",
	fMemHostAlloc:            "cuMemHostAlloc",
	fMemFreeHost:             "cuMemFreeHost",
	fMemHostRegister:         "cuMemHostRegister_v2",
	fMemHostUnregister:       "cuMemHostUnregister",
	fMemHostGetDevicePointer: "cuMemHostGetDevicePointer_v2",
	fPointerGetAttribute:     "cuPointerGetAttribute",
	fMemcpyAsync:             "cuMemcpyAsync",
	fMemcpy2DAsync:           "cuMemcpy2DAsync_v2",
	fMemcpyBatchAsync:        "cuMemcpyBatchAsync",
	fMemcpyBatchAsyncV2:      "cuMemcpyBatchAsync_v2",
	fMemsetD8Async:           "cuMemsetD8Async",
	fMemPoolCreate:           "cuMemPoolCreate",
	fMemPoolDestroy:          "cuMemPoolDestroy",
	fMemAllocFromPoolAsync:   "cuMemAllocFromPoolAsync",
	fMemFreeAsync:            "cuMemFreeAsync",

	fMemGetAllocationGranularity:  "cuMemGetAllocationGranularity",
	fMemAddressReserve:            "cuMemAddressReserve",
	fMemAddressFree:               "cuMemAddressFree",
	fMemCreate:                    "cuMemCreate",
	fMemRelease:                   "cuMemRelease",
	fMemMap:                       "cuMemMap",
	fMemUnmap:                     "cuMemUnmap",
	fMemSetAccess:                 "cuMemSetAccess",
	fMemExportToShareableHandle:   "cuMemExportToShareableHandle",
	fMemImportFromShareableHandle: "cuMemImportFromShareableHandle",
	fMemGetHandleForAddressRange:  "cuMemGetHandleForAddressRange",

	fIpcGetMemHandle:   "cuIpcGetMemHandle",
	fIpcOpenMemHandle:  "cuIpcOpenMemHandle_v2",
	fIpcCloseMemHandle: "cuIpcCloseMemHandle",

	fStreamCreateWithPriority:        "cuStreamCreateWithPriority",
	fStreamDestroy:                   "cuStreamDestroy_v2",
	fStreamQuery:                     "cuStreamQuery",
	fStreamSynchronize:               "cuStreamSynchronize",
	fStreamWaitEvent:                 "cuStreamWaitEvent",
	fStreamWriteValue32:              "cuStreamWriteValue32_v2",
	fStreamWriteValue64:              "cuStreamWriteValue64_v2",
	fStreamWaitValue32:               "cuStreamWaitValue32_v2",
	fStreamWaitValue64:               "cuStreamWaitValue64_v2",
	fStreamBatchMemOp:                "cuStreamBatchMemOp_v2",
	fStreamBeginCapture:              "cuStreamBeginCapture_v2",
	fStreamEndCapture:                "cuStreamEndCapture",
	fStreamIsCapturing:               "cuStreamIsCapturing",
	fThreadExchangeStreamCaptureMode: "cuThreadExchangeStreamCaptureMode",
	fLaunchHostFunc:                  "cuLaunchHostFunc",

	fEventCreate:      "cuEventCreate",
	fEventDestroy:     "cuEventDestroy_v2",
	fEventRecord:      "cuEventRecord",
	fEventQuery:       "cuEventQuery",
	fEventSynchronize: "cuEventSynchronize",
	fEventElapsedTime: "cuEventElapsedTime",

	fModuleLoadData:    "cuModuleLoadData",
	fModuleUnload:      "cuModuleUnload",
	fModuleGetFunction: "cuModuleGetFunction",
	fModuleGetGlobal:   "cuModuleGetGlobal_v2",
	fFuncSetAttribute:  "cuFuncSetAttribute",
	fLaunchKernel:      "cuLaunchKernel",
	fLaunchKernelEx:    "cuLaunchKernelEx",

	fGraphInstantiate: "cuGraphInstantiateWithFlags",
	fGraphLaunch:      "cuGraphLaunch",
	fGraphDestroy:     "cuGraphDestroy",
	fGraphExecDestroy: "cuGraphExecDestroy",
}

// optional functions came with later drivers than the oldest that is of use.
var optional = map[fn]bool{
	fMemcpyBatchAsync:            true,
	fMemcpyBatchAsyncV2:          true,
	fMemGetHandleForAddressRange: true,
	fLaunchKernelEx:              true,
}
