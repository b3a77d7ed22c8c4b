# The two shapes of target in this tree. Sources are named one by one, relative to the folder that calls.

# hearsay_library(NAME sources... [LIBS libs...]): a static library libhearsay_NAME.
function(hearsay_library name)
    cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
    add_library(hearsay_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
    target_link_libraries(hearsay_${name} PUBLIC ${ARG_LIBS})
endfunction()

# hearsay_test(NAME sources... [LIBS libs...] [TIMEOUT seconds] [ARGS arguments...]): a cmocka program test_NAME, run by
# ctest from the top of the source tree; exit status 77 means skipped.
function(hearsay_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "LIBS;ARGS" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    add_executable(test_${name} ${ARG_UNPARSED_ARGUMENTS})
    target_link_libraries(test_${name} PRIVATE ${ARG_LIBS} PkgConfig::CMOCKA)
    add_test(NAME ${name} COMMAND test_${name} ${ARG_ARGS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
