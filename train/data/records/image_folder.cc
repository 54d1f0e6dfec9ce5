#include "train/data/records/image_folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/names.h"
#include "train/data/images/decode.h"
#include "train/data/images/encode.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

// In small letters.
std::string ExtensionOf(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool IsImage(const fs::path& path) {
  const std::string extension = ExtensionOf(path);
  return !IsHidden(path) && (extension == ".jpg" || extension == ".jpeg" || extension == ".png");
}

// An image that is not read.
bool IsOtherImage(const fs::path& path) {
  const std::string extension = ExtensionOf(path);
  return !IsHidden(path) && std::ranges::any_of(std::vector{".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2",
                                                            ".pgm", ".ppm", ".tif", ".tiff", ".webp"},
                                                [&](const char* other) { return extension == other; });
}

bool IsInColour(const Image& image) {  // with three channels
  constexpr int kGrey = 16;            // a grey JPEG that was stored with colours has no more
  for (size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    const auto [low, high] = std::minmax({image.pixels[i], image.pixels[i + 1], image.pixels[i + 2]});
    if (high - low > kGrey) return true;
  }
  return false;
}

class ImageFolder : public RecordSource {
 public:
  ImageFolder(const std::string& path, const ImageFolderOptions& options) : options_(options) {
    try {
      List(path);
    } catch (const fs::filesystem_error& e) {
      Throw<DataError>("folder \"{}\": {}", path, e.code().message());
    }
    if (!options_.warns || others_.empty()) return;
    std::string kinds;
    for (const auto& [kind, count] : others_) kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
    LogLine(LogLevel::kWarning, fmt::format("folder \"{}\": {} .jpg, .jpeg and .png are read, other images are not: {}",
                                            path, files_.size(), kinds));
  }

  int64_t records() const override { return static_cast<int64_t>(files_.size()); }
  Record Read(int64_t number) const override {
    const File& file = files_[static_cast<size_t>(number)];
    Record record;
    record["image"].bytes.push_back(ReadFile(file.path, options_.file_bytes));
    if (file.label >= 0) record["label"].ints.push_back(file.label);
    return record;
  }
  std::string Name(int64_t number) const override {
    return fmt::format("\"{}\"", files_[static_cast<size_t>(number)].path);
  }
  uint64_t Fingerprint() const override { return fingerprint_; }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  struct File {
    std::string path;
    int64_t label;  // kNone: its class is not known
  };
  static constexpr int64_t kNone = -1;
  static constexpr const char* kOnlyPredicted =
      "what is in no folder of a class can be predicted, but neither trained nor tested on";

  void List(const std::string& path) {
    if (fs::is_regular_file(path)) {
      if (!options_.unlabelled) {
        Throw<DataError>("\"{}\" is a file, not a folder with one for each class of images; {}", path, kOnlyPredicted);
      }
      classes_ = options_.classes;
      files_.push_back({path, kNone});
      return Sign(0, path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }
    std::vector<std::string> folders;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_directory() && !name.starts_with('.')) folders.push_back(name);
    }
    std::ranges::sort(folders);
    classes_ = options_.classes.empty() ? folders : options_.classes;
    if (folders.empty() && options_.unlabelled) return AddFiles(fs::directory_iterator(path), path, path.size(), kNone);
    if (folders.empty()) {
      Throw<DataError>("folder \"{}\" has no folders in it, one for each class of images; {}", path, kOnlyPredicted);
    }
    for (const std::string& folder : folders) {
      const auto found = std::ranges::find(classes_, folder);
      if (found == classes_.end()) {
        Throw<DataError>("folder \"{}\": \"{}\" is none of the {} classes{}", path, folder, classes_.size(),
                         NameHint(folder, classes_));
      }
      const std::string inside = path + "/" + folder;
      AddFiles(fs::recursive_directory_iterator(inside), inside, path.size(), found - classes_.begin());
    }
  }

  template <class Entries>
  void AddFiles(Entries entries, const std::string& folder, size_t root, int64_t label) {
    const size_t first = files_.size();
    for (const fs::directory_entry& entry : entries) {
      if (IsImage(entry.path()) && entry.is_regular_file()) files_.push_back({entry.path().string(), label});
      if (options_.warns && IsOtherImage(entry.path())) ++others_[ExtensionOf(entry.path())];
    }
    if (files_.size() == first) Throw<DataError>("folder \"{}\" has no .jpg, .jpeg or .png files", folder);
    std::sort(files_.begin() + static_cast<std::ptrdiff_t>(first), files_.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
    Sign(first, root);
  }

  // Adds files from number `first` on to the fingerprint, by their names behind the first `root` characters.
  void Sign(size_t first, size_t root) {
    for (size_t i = first; i < files_.size(); ++i) {
      const std::string text =
          fmt::format("{} {} {}", files_[i].path.substr(root), fs::file_size(files_[i].path), files_[i].label);
      fingerprint_ = Checksum(text.data(), static_cast<int64_t>(text.size()), fingerprint_);
    }
  }

  const ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::map<std::string, int64_t> others_;  // by extension: how many are not read
  uint64_t fingerprint_ = 0;
};

}  // namespace

RecordSourcePtr OpenImageFolder(const std::string& path, const ImageFolderOptions& options) {
  return std::make_shared<ImageFolder>(path, options);
}

ColourCount CountColours(const RecordSource& folder, int64_t most) {
  ColourCount count{.seen = std::min(most, folder.records())};
  for (int64_t i = 0; i < count.seen; ++i) {
    const int64_t number = i * folder.records() / count.seen;
    try {
      const Image image = DecodeImage(folder.Read(number).at("image").bytes[0], /*channels=*/3, folder.Name(number));
      count.coloured += IsInColour(image) ? 1 : 0;
    } catch (const DataError&) {  // whoever trains on it tells
    }
  }
  return count;
}

HostTensor ReadImageFile(const std::string& path, const ImageOptions& options) {
  CheckImageOptions(options, /*in_training=*/false);
  const std::string name = fmt::format("\"{}\"", path);
  Image image = DecodeImage(ReadFile(path, ImageFolderOptions().file_bytes), options.channels, name);
  HostTensor values(DType::kFloat32, {options.channels, options.rows, options.columns});
  Transform(std::move(image), options, /*random=*/nullptr, name, values.data<float>().data());
  return values;
}

void WriteImageFolder(const ImageSet& set, const std::string& path) {
  for (int64_t i = 0; i < set.labels.elements(); ++i) {
    const std::string folder = fmt::format("{}/{}", path, static_cast<int64_t>(set.labels.At(i)));
    MakeFolder(folder);
    const HostTensor image = set.images.Slice(0, i, i + 1).Reshape(set.images.shape().Erase(0));
    // As they come, not synced one by one, which is what writing thousands would take its time for.
    const std::string file = fmt::format("{}/{:06}.png", folder, i), bytes = EncodePng(ToImage(image));
    if (!std::ofstream(file, std::ios::binary).write(bytes.data(), std::ssize(bytes)).flush()) {
      Throw<DataError>("cannot write \"{}\": {}", file, std::generic_category().message(errno));
    }
  }
}

}  // namespace bindery
