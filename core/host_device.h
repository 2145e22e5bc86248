// STEPNET_HOST_DEVICE marks functions that kernels of a GPU call as well. Compilers that know no GPU see nothing.
#pragma once

#ifdef __CUDACC__
#define STEPNET_HOST_DEVICE __host__ __device__
#else
#define STEPNET_HOST_DEVICE
#endif
