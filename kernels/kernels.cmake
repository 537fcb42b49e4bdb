# For Metal, kernels/join.py joins the kernels into one text per library, which
# is embedded in the target and compiled at first use; with a Metal compiler
# they are compiled to metallibs, too. For CUDA they are translated and
# embedded.
set(_kernels_dir ${CMAKE_CURRENT_LIST_DIR})
set(_python "${Python_EXECUTABLE}" -B)
file(GLOB_RECURSE _kernel_files CONFIGURE_DEPENDS ${_kernels_dir}/*.metal
     ${_kernels_dir}/*.h ${_kernels_dir}/msl/*.py ${_kernels_dir}/join.py
     ${_kernels_dir}/by_value.py)

# Generates kernels/interface.h, by which launch plans are filled in, for the
# sources that include it.
function(mlx_norms_generate_interface target)
  set(_folder ${CMAKE_CURRENT_BINARY_DIR}/generated)
  set(_outputs ${_folder}/kernels/interface.h ${_folder}/kernel_needs.cpp)
  add_custom_command(
    OUTPUT ${_outputs}
    COMMAND ${_python} ${_kernels_dir}/interface.py
            "${CMAKE_CXX_COMPILER}" ${_outputs}
    DEPENDS ${_kernel_files} ${_kernels_dir}/interface.py
    VERBATIM)
  target_sources(${target} PRIVATE ${_outputs})
  target_include_directories(${target} PRIVATE ${_folder})
endfunction()

# Options: those of join.py.
function(mlx_norms_embed_kernels target)
  set(_text ${CMAKE_CURRENT_BINARY_DIR}/kernel_text_of${target}.cpp)
  add_custom_command(
    OUTPUT ${_text}
    COMMAND ${_python} ${_kernels_dir}/join.py cpp ${_text} ${ARGN}
    DEPENDS ${_kernel_files}
    VERBATIM)
  target_sources(${target} PRIVATE ${_text})
endfunction()

function(mlx_norms_embed_cuda_kernels target)
  set(_text ${CMAKE_CURRENT_BINARY_DIR}/cuda_kernel_text.cpp)
  file(GLOB _translator CONFIGURE_DEPENDS ${_kernels_dir}/to_cuda/*.py
       ${_kernels_dir}/to_cuda/*.h)
  add_custom_command(
    OUTPUT ${_text}
    COMMAND ${_python} -m to_cuda "${CMAKE_CXX_COMPILER}" ${_text}
    WORKING_DIRECTORY ${_kernels_dir}
    DEPENDS ${_kernel_files} ${_translator}
    VERBATIM)
  target_sources(${target} PRIVATE ${_text})
endfunction()

# A library that the Metal compiler refuses is reported in one line, and
# compiled from its text at first use.
function(mlx_norms_build_metallibs target)
  set(_macos ${CMAKE_OSX_DEPLOYMENT_TARGET})
  if(NOT _macos OR _macos VERSION_LESS 14.0)
    set(_macos 14.0) # the oldest that MLX's wheels run on; conda sets 11.0
  endif()
  set(_folder ${CMAKE_CURRENT_BINARY_DIR}/metallibs)
  add_custom_command(
    OUTPUT ${_folder}/done
    COMMAND ${_python} ${_kernels_dir}/metallibs.py ${_folder}
            ${_macos}
    DEPENDS ${_kernel_files} ${_kernels_dir}/metallibs.py
    COMMENT "Building the Metal kernels"
    VERBATIM)
  add_custom_target(mlx_norms_metallibs DEPENDS ${_folder}/done)
  add_dependencies(${target} mlx_norms_metallibs)
  install(
    DIRECTORY ${_folder}/
    DESTINATION mlx_norms
    FILES_MATCHING
    PATTERN "*.metallib")
endfunction()
