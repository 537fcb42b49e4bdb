# For Metal the kernels are joined into one text (kernels/join.py), either
# embedded in the target, to be compiled at first use, or compiled to
# mlx_norms.metallib. For CUDA they are translated and embedded.
set(_kernels_dir ${CMAKE_CURRENT_LIST_DIR})
file(GLOB_RECURSE _kernel_files CONFIGURE_DEPENDS ${_kernels_dir}/*.metal
     ${_kernels_dir}/*.h)

function(_mlx_norms_join form out)
  add_custom_command(
    OUTPUT ${out}
    COMMAND "${Python_EXECUTABLE}" ${_kernels_dir}/join.py ${form} ${out}
    DEPENDS ${_kernel_files} ${_kernels_dir}/join.py
    VERBATIM)
endfunction()

function(mlx_norms_embed_kernels target)
  set(_text ${CMAKE_CURRENT_BINARY_DIR}/kernel_text.cpp)
  _mlx_norms_join(cpp ${_text})
  target_sources(${target} PRIVATE ${_text})
endfunction()

function(mlx_norms_embed_cuda_kernels target)
  set(_text ${CMAKE_CURRENT_BINARY_DIR}/cuda_kernel_text.cpp)
  file(GLOB _translator CONFIGURE_DEPENDS ${_kernels_dir}/to_cuda/*.py
       ${_kernels_dir}/to_cuda/*.h
       ${_kernels_dir}/msl/*.py)
  add_custom_command(
    OUTPUT ${_text}
    COMMAND "${Python_EXECUTABLE}" -B -m to_cuda "${CMAKE_CXX_COMPILER}" ${_text}
    WORKING_DIRECTORY ${_kernels_dir}
    DEPENDS ${_kernel_files} ${_translator}
    VERBATIM)
  target_sources(${target} PRIVATE ${_text})
endfunction()

function(mlx_norms_build_metallib target)
  set(_text ${CMAKE_CURRENT_BINARY_DIR}/mlx_norms_kernels.metal)
  _mlx_norms_join(metal ${_text})
  set(_macos ${CMAKE_OSX_DEPLOYMENT_TARGET})
  if(NOT _macos)
    set(_macos 14.0) # the oldest that MLX's wheels run on
  endif()
  mlx_build_metallib(
    TARGET
    mlx_norms_metallib
    TITLE
    mlx_norms
    SOURCES
    ${_text}
    OUTPUT_DIRECTORY
    ${CMAKE_CURRENT_BINARY_DIR}
    DEPLOYMENT_TARGET
    ${_macos})
  add_dependencies(${target} mlx_norms_metallib)
  target_compile_definitions(${target} PRIVATE MLX_NORMS_METALLIB)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mlx_norms.metallib
          DESTINATION mlx_norms)
endfunction()
