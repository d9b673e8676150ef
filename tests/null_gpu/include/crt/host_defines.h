/* CUDA's compiler has this header; torch's packages do not. Enough of it for driver_types.h in C. */
#pragma once
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __host__
#define __device__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define __specialization_static static
#define __dv(v)
#define CUDARTAPI_CDECL
#define __CUDA_ARCH_HAS_FEATURE__(x) 0
#define __no_return__ __attribute__((noreturn))
