// What tests of trainings and of programs read (outside.h).
#include "bindery/bindery.h"
#include "tests/precompiled/outside.h"
