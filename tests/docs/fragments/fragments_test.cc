// The blocks ```cpp and ```c of pages that are no programs compile.
#include <gtest/gtest.h>

#include "tests/docs/fragments/given.h"

#pragma GCC diagnostic ignored "-Wreturn-type"                 // of a main
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // of C

namespace bindery {
#include "tests/docs/fragments/fragments.inc"

namespace {

TEST(Fragments, Compile) {}  // what is behind this is above

}  // namespace
}  // namespace bindery
