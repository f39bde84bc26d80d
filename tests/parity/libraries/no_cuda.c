/* What torchvision's library asks of CUDA when it is loaded: with it, PyTorch's CPU build runs torchvision's CPU kernels. */
static long nothing[64];
#define F(name) void *name(void) { return nothing; }
#define ZERO(name) long name(void) { return 0; }
F(__cudaRegisterFatBinary)
ZERO(__cudaGetKernel) ZERO(__cudaInitModule) ZERO(__cudaLaunchKernel) ZERO(__cudaPopCallConfiguration)
ZERO(__cudaPushCallConfiguration) ZERO(__cudaRegisterFatBinaryEnd) ZERO(__cudaRegisterFunction) ZERO(__cudaRegisterVar)
ZERO(__cudaUnregisterFatBinary) ZERO(cudaDeviceSynchronize) ZERO(cudaEventCreateWithFlags) ZERO(cudaEventDestroy)
ZERO(cudaEventElapsedTime) ZERO(cudaEventQuery) ZERO(cudaEventRecord) ZERO(cudaEventSynchronize) ZERO(cudaGetErrorString)
ZERO(cudaGetLastError) ZERO(cudaStreamIsCapturing) ZERO(cudaStreamWaitEvent)
long _ZN3c104cuda20CUDACachingAllocator9allocatorE[64];
ZERO(_ZN2at4cuda26getCurrentDevicePropertiesEv) ZERO(_ZN3c104cuda12device_countEv) ZERO(_ZN3c104cuda14ExchangeDeviceEa)
ZERO(_ZN3c104cuda14MaybeSetDeviceEa) ZERO(_ZN3c104cuda17getStreamFromPoolEba) ZERO(_ZN3c104cuda17getStreamFromPoolEia)
ZERO(_ZN3c104cuda20getCurrentCUDAStreamEa) ZERO(_ZN3c104cuda20getDefaultCUDAStreamEa) ZERO(_ZN3c104cuda9GetDeviceEPa)
ZERO(_ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE) ZERO(_ZN3c104cuda9SetDeviceEab)
ZERO(_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb) ZERO(_ZNK3c104cuda10CUDAStream11synchronizeEv)
ZERO(_ZNK3c104cuda10CUDAStream5queryEv) ZERO(_ZNK3c104cuda10CUDAStream6streamEv)
