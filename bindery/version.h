// The version of the headers. Patches keep everything; the ABI's number, which the shared libraries' names end in, is
// another whenever programs that were built before would not run with the library.
#pragma once

#define BINDERY_VERSION_MAJOR 0
#define BINDERY_VERSION_MINOR 1
#define BINDERY_VERSION_PATCH 0
#define BINDERY_VERSION "0.1.0"
#define BINDERY_VERSION_ABI 0
