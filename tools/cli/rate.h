// How fast something goes, for people.
#pragma once

#include <string>

namespace bindery::cli {

std::string Rate(double per_second);  // "1719"; with two digits below ten: "3.2", "0.12"; "--" if it is none

}  // namespace bindery::cli
