# STEPNET_CUDA: the parts of gpu/ that need a CUDA toolkit.
#
# What needs none (gpu/*.cc: printing kernels, compiling them through NVRTC, which is opened when a program runs) is
# always built. gpu/cuda/*.cc include headers of CUDA, *.cu are compiled by nvcc; both are built where a toolkit
# is found.
set(STEPNET_HAS_CUDA FALSE)
if(NOT STEPNET_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  # Else where NVIDIA's packages put it, or scripts/setup --cuda; also where neither was there the last time.
  set(own_toolkit ${PROJECT_SOURCE_DIR}/build/cuda/nvidia/cu13)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(nvcc nvcc PATHS $ENV{CUDA_PATH}/bin /usr/local/cuda/bin ${own_toolkit}/bin NO_DEFAULT_PATH NO_CACHE)
    if(nvcc)
      set(CMAKE_CUDA_COMPILER ${nvcc} CACHE FILEPATH "The compiler of CUDA" FORCE)
      set(CMAKE_CUDA_COMPILER ${nvcc})
    endif()
  endif()
  set(min_cuda 13.0)
  if(CMAKE_CUDA_COMPILER)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
    if(NOT nvcc_says MATCHES "release ([0-9]+\\.[0-9]+)" OR CMAKE_MATCH_1 VERSION_LESS min_cuda)
      message(WARNING "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}, and ${min_cuda} is needed; "
                      "scripts/setup --cuda brings it")
      unset(CMAKE_CUDA_COMPILER)
      unset(CMAKE_CUDA_COMPILER CACHE)
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER STREQUAL "${own_toolkit}/bin/nvcc")
    list(APPEND CMAKE_BUILD_RPATH ${own_toolkit}/lib)  # its libraries are nowhere that a loader looks
  endif()
  if(CMAKE_CUDA_COMPILER)
    # Code of these GPUs, and PTX from which drivers make code of newer ones. Not of the oldest: code that was made from
    # that knows neither clusters nor kernels that come early.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit QUIET)
    set(STEPNET_HAS_CUDA ${CUDAToolkit_FOUND})
  endif()
  if(NOT STEPNET_HAS_CUDA AND STEPNET_CUDA STREQUAL "ON")
    message(FATAL_ERROR "STEPNET_CUDA is ON, and no CUDA toolkit from ${min_cuda} on was found; set CMAKE_CUDA_COMPILER to its nvcc")
  endif()
endif()
if(STEPNET_HAS_CUDA)
  message(STATUS "StepNet is built with CUDA ${CUDAToolkit_VERSION}, for GPUs of ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "StepNet is built without CUDA (STEPNET_CUDA is ${STEPNET_CUDA})")
endif()

# C++ files that include CUDA's headers: an option of these files alone, because one of a target would compile all of it
# anew whenever a toolkit comes or goes.
# CUPTI's may lie apart, or be missing.
function(stepnet_uses_cuda)
  set(folders ${CUDAToolkit_INCLUDE_DIRS})
  if(EXISTS ${CUDAToolkit_BIN_DIR}/../extras/CUPTI/include/cupti.h)
    list(APPEND folders ${CUDAToolkit_BIN_DIR}/../extras/CUPTI/include)
  endif()
  list(TRANSFORM folders PREPEND "-isystem;" OUTPUT_VARIABLE includes)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${includes}")
endfunction()

# CUDA's runtime, as part of the program: it says itself whether there is a driver. The file and not the target, which
# would bring its headers along. An installed archive has its own copy, so that whoever links it needs no toolkit.
set(STEPNET_INSTALLED_CUDART libstepnet_cudart.a)
function(stepnet_link_cudart target)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  set(installed $<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/${STEPNET_INSTALLED_CUDART})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${cudart}> $<INSTALL_INTERFACE:${installed}> rt)
endfunction()

function(stepnet_install_cudart)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  install(FILES ${cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME ${STEPNET_INSTALLED_CUDART})
endfunction()

# What nvcc is given for these files.
function(stepnet_compile_cuda)
  # Nothing contracted: a kernel that promises bits says MulAdd.
  set(options -std=c++20 --fmad=false --expt-relaxed-constexpr --extended-lambda)
  if(STEPNET_WERROR)
    list(APPEND options -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  # As all of our code: CMakeLists.txt tells why.
  if(NOT STEPNET_SANITIZE)
    list(APPEND options -Xcompiler=-fstack-protector-strong)
    if(STEPNET_HAS_CF_PROTECTION)
      list(APPEND options -Xcompiler=-fcf-protection)
    endif()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

function(stepnet_add_cuda_sources target)
  if(NOT STEPNET_HAS_CUDA)
    return()
  endif()
  file(GLOB cxx_sources CONFIGURE_DEPENDS gpu/cuda/*.cc)
  file(GLOB cuda_sources CONFIGURE_DEPENDS gpu/*.cu gpu/cuda/*.cu gpu/cuda/kernels/*.cu)
  if(NOT cxx_sources AND NOT cuda_sources)
    return()
  endif()
  target_sources(${target} PRIVATE ${cxx_sources} ${cuda_sources})
  stepnet_uses_cuda(${cxx_sources})
  stepnet_link_cudart(${target})
  stepnet_compile_cuda(${cuda_sources})
endfunction()

# The code that kernels call, as a raw string for the file that hands it to NVRTC.
set(device_code ${PROJECT_SOURCE_DIR}/gpu/device_code.cuh)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${device_code})
file(READ ${device_code} DEVICE_CODE)
string(REPLACE "#pragma once\n" "" DEVICE_CODE "${DEVICE_CODE}")  # it is no header there
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/stepnet/gpu/device_code.inc
     CONTENT "R\"cuda(@DEVICE_CODE@)cuda\"\n" @ONLY)
