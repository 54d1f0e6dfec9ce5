// What programs include, compiled once for all that are built in this tree (base/precompiled.bzl).
#include "bindery/bindery.h"
