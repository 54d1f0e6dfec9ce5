#include "train/weights/npz_writer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/files.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

constexpr int64_t kMostBytes = 0xffffffff;  // what the sizes and offsets of the archive can say
constexpr int64_t kMostFiles = 0xffff - 1;

void Append(std::string* bytes, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) bytes->push_back(static_cast<char>(value >> (8 * i)));
}

struct File {
  const HostTensor* array;
  std::string name, header;
  uint32_t crc32 = 0;
  int64_t bytes = 0, offset = 0;
};

// What a file's headers in the archive and in its directory have in common.
void AppendEntry(const File& file, std::string* bytes) {
  constexpr int kVersion = 20, kUtf8Names = 1 << 11, kStored = 0;
  constexpr int kMidnight = 0, kFirstOfJanuary1980 = 0x21;
  Append(bytes, kVersion, 2);
  Append(bytes, kUtf8Names, 2);
  Append(bytes, kStored, 2);
  Append(bytes, kMidnight, 2);
  Append(bytes, kFirstOfJanuary1980, 2);
  Append(bytes, file.crc32, 4);
  Append(bytes, static_cast<uint64_t>(file.bytes), 4);
  Append(bytes, static_cast<uint64_t>(file.bytes), 4);
  Append(bytes, file.name.size(), 2);
  Append(bytes, 0, 2);  // extra field
}

std::string LocalHeader(const File& file) {
  std::string bytes = "PK\x03\x04";
  AppendEntry(file, &bytes);
  return bytes + file.name;
}

std::string DirectoryEntry(const File& file) {
  std::string bytes = "PK\x01\x02";
  Append(&bytes, 20, 2);  // made by
  AppendEntry(file, &bytes);
  Append(&bytes, 0, 2);  // comment
  Append(&bytes, 0, 2);  // disk
  Append(&bytes, 0, 2);  // attributes, of it and of the file
  Append(&bytes, 0, 4);
  Append(&bytes, static_cast<uint64_t>(file.offset), 4);
  return bytes + file.name;
}

uint32_t Crc(uint32_t before, const void* data, int64_t size) {
  if (size == 0) return before;  // without data, zlib gives the value to begin with
  return static_cast<uint32_t>(::crc32_z(before, static_cast<const Bytef*>(data), static_cast<size_t>(size)));
}

}  // namespace

void SaveNpz(const HostTensorMap& arrays, const std::string& path) {
  const auto fail = [&](const std::string& why) { Throw<DataError>("cannot write \"{}\": {}", path, why); };
  if (std::ssize(arrays) > kMostFiles)
    fail(fmt::format("{} arrays; an .npz has at most {}", arrays.size(), kMostFiles));
  std::vector<File> files;
  int64_t end = 0, directory_bytes = 0;
  for (const auto& [name, array] : arrays) {
    if (name.empty()) fail("an array has no name");
    File file{.array = &array, .name = name + ".npy", .header = NpyHeader(array), .offset = end};
    if (file.name.size() > 0xffff || name.find('\0') != std::string::npos) fail("a name that an .npz cannot hold");
    file.bytes = CheckedAdd(static_cast<int64_t>(file.header.size()), array.bytes());
    file.crc32 = Crc(Crc(0, file.header.data(), std::ssize(file.header)), array.raw(), array.bytes());
    end = CheckedAdd(end, CheckedAdd(file.bytes, std::ssize(LocalHeader(file))));
    directory_bytes += std::ssize(DirectoryEntry(file));
    if (end + directory_bytes > kMostBytes) fail("an .npz holds less than 4 GiB; a .safetensors holds more");
    files.push_back(std::move(file));
  }
  WriteFileAtomically(path, [&](const ByteSink& sink) {
    const auto write = [&](const std::string& bytes) { sink(bytes.data(), std::ssize(bytes)); };
    std::string directory;
    for (const File& file : files) {
      write(LocalHeader(file));
      write(file.header);
      sink(file.array->raw(), file.array->bytes());
      directory += DirectoryEntry(file);
    }
    std::string last = "PK\x05\x06";
    Append(&last, 0, 4);  // disks
    Append(&last, files.size(), 2);
    Append(&last, files.size(), 2);
    Append(&last, directory.size(), 4);
    Append(&last, static_cast<uint64_t>(end), 4);
    Append(&last, 0, 2);  // comment
    write(directory + last);
  });
}

}  // namespace bindery
