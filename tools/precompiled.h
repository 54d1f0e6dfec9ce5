// What programs of this folder read, compiled once for all of them (base/precompiled.bzl).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bindery/bindery.h"
