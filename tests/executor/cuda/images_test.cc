// The images of kernels in the program: each holds code for all kinds of GPUs that it is for, and PTX for later ones.
#include <gtest/gtest.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "engine/cuda/image.h"

namespace bindery {
namespace {

// As nvcc is told (third_party/cuda/defs.bzl).
const std::set<std::string> kAll = {"PTX of 80", "code of 80", "code of 90", "code of 100"};

// At the beginning of an image, and of each part of it, which is its header and then its data. NVIDIA describes neither:
// they are as CUDA 13.0's nvcc writes them.
struct ImageHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of all parts
};
struct PartHeader {
  uint16_t kind, version;  // 1: PTX, 2: code
  uint32_t header_bytes;
  uint64_t bytes;  // of data
  uint32_t others[3], architecture;
};
static_assert(sizeof(ImageHeader) == 16 && sizeof(PartHeader) == 32);
constexpr uint32_t kMagic = 0xba55ed50;

// "PTX of 80" and the like for each part, up to one that is not whole.
std::set<std::string> PartsOf(std::string_view image) {
  std::set<std::string> parts;
  ImageHeader all{};
  PartHeader part{};
  if (image.size() < sizeof all) return parts;
  std::memcpy(&all, image.data(), sizeof all);
  if (all.magic != kMagic || all.header_bytes < sizeof all) return parts;
  image = image.substr(0, all.header_bytes + all.bytes);
  for (size_t at = all.header_bytes; at + sizeof part <= image.size(); at += part.header_bytes + part.bytes) {
    std::memcpy(&part, image.data() + at, sizeof part);
    if (part.kind != 1 && part.kind != 2) break;
    if (part.header_bytes < sizeof part || part.bytes == 0) break;
    if (part.header_bytes + part.bytes > image.size() - at) break;
    parts.insert((part.kind == 1 ? "PTX of " : "code of ") + std::to_string(part.architecture));
  }
  return parts;
}

// All that begin in the files of this program and of its libraries as the engine's own image does: so that of a new
// family of kernels is found, too.
std::vector<std::string> ImagesOfTheProgram() {
  std::set<std::string> files;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    static_cast<std::set<std::string>*>(to)->insert(*info->dlpi_name ? info->dlpi_name : "/proc/self/exe");
    return 0;
  };
  dl_iterate_phdr(add, &files);
  std::string beginning(8, 0);
  std::memcpy(beginning.data(), bindery_cuda_image, beginning.size());
  std::vector<std::string> images;
  for (const std::string& file : files) {
    if (!std::filesystem::exists(file)) continue;  // what the system's kernel adds is no file
    const std::string bytes = ReadFile(file);
    for (size_t at = 0; (at = bytes.find(beginning, at)) != std::string::npos; at += beginning.size()) {
      ImageHeader header{};
      if (at + sizeof header > bytes.size()) break;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      images.push_back(bytes.substr(at, sizeof header + header.bytes));
    }
  }
  return images;
}

TEST(CudaImagesTest, HoldCodeForAllArchitectures) {
  const std::vector<std::string> images = ImagesOfTheProgram();
  EXPECT_GE(images.size(), 13u);  // the engine's, and those of twelve families of operators
  for (const std::string& image : images) {
    EXPECT_EQ(PartsOf(image), kAll) << "image of " << image.size() << " bytes";
  }
}

// What the test above would see.
TEST(CudaImagesTest, OneThatLacksSomethingIsSeen) {
  ImageHeader all{};
  std::memcpy(&all, bindery_cuda_image, sizeof all);
  const std::string image(reinterpret_cast<const char*>(bindery_cuda_image), all.header_bytes + all.bytes);
  ASSERT_EQ(PartsOf(image), kAll);
  EXPECT_EQ(PartsOf(image.substr(0, image.size() - 1)).size(), kAll.size() - 1);

  PartHeader ptx{};
  std::memcpy(&ptx, image.data() + all.header_bytes, sizeof ptx);
  ASSERT_EQ(ptx.kind, 1);
  const size_t end = all.header_bytes + ptx.header_bytes + ptx.bytes;
  std::string without = image.substr(0, all.header_bytes) + image.substr(end);
  const uint64_t rest = image.size() - end;
  std::memcpy(without.data() + offsetof(ImageHeader, bytes), &rest, sizeof rest);
  EXPECT_EQ(PartsOf(without), (std::set<std::string>{"code of 80", "code of 90", "code of 100"}));

  std::string other = image;
  other[all.header_bytes + offsetof(PartHeader, architecture)] = 90;  // which GPUs of 8.0 cannot make code of
  EXPECT_EQ(PartsOf(other), (std::set<std::string>{"PTX of 90", "code of 80", "code of 90", "code of 100"}));
  EXPECT_TRUE(PartsOf("").empty());
}

}  // namespace
}  // namespace bindery
