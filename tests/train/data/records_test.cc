// Record files written by others (stored/make_data.py), and files that are damaged in every byte.
#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "train/data/digits.h"
#include "train/data/gunzip.h"
#include "train/data/open.h"
#include "train/data/records/crc32c.h"
#include "train/data/records/image_folder.h"
#include "train/data/records/packed_file.h"
#include "train/data/records/record.h"
#include "train/data/records/record_file.h"
#include "train/data/records/tar.h"
#include "train/data/records/tf_record.h"
#include "train/data/samples/sample_iter.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;
const std::string kFolder = "tests/train/stored/";

class RecordsTest : public testing::Test {
 protected:
  RecordsTest() : folder_(testing::TempDir() + "/records") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    WriteFileAtomically(path, bytes);
    return path;
  }
  // Whatever is wrong, records or a DataError.
  template <class Open>
  void DamageEverywhere(const std::string& whole, size_t ends, size_t step, const Open& open) const {
    const auto reads = [&](const std::string& bytes) {
      try {
        const std::string path = folder_ + "/damaged";
        std::ofstream(path, std::ios::binary) << bytes;  // without waiting for the disk
        const RecordSourcePtr records = open(path);
        for (int64_t i = 0; i < records->records(); ++i) records->Read(i);
        return records->records();
      } catch (const DataError&) {
        return int64_t{-1};
      }
    };
    for (size_t at = 1; at < ends; at += step) {
      reads(whole.substr(0, at));
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
      reads(bytes);
    }
  }
  const std::string folder_;
};

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(Crc32c(up), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST_F(RecordsTest, TfRecordsOfAnotherWriter) {
  const RecordSourcePtr records = OpenTfRecords({kFolder + "python.tfrecord", kFolder + "python.tfrecord"});
  ASSERT_EQ(records->records(), 8);
  const Record second = records->Read(5);
  EXPECT_EQ(second.at("x").floats, (std::vector<float>{1.5f, -1.0f, 1e-3f}));
  EXPECT_EQ(second.at("label").ints, std::vector<int64_t>{1});
  EXPECT_EQ(second.at("name").bytes, std::vector<std::string>{"sample 1"});
  EXPECT_EQ(CountClasses(*records, {.data = "x"}), 3);
  SampleIter iter(SamplesOf(records, {.data = "x", .num_classes = 3}), {.batch_size = 2});
  const BatchPtr batch = iter.Next();
  EXPECT_EQ(batch->data[0], HostTensor::From({2, 3}, {0.5f, 0, 1e-3f, 1.5f, -1, 1e-3f}));
  EXPECT_EQ(batch->label[0], HostTensor::From({2}, {0, 1}));
  EXPECT_EQ(MessageOf<DataError>([&] { SamplesOf(records, {}); }),
            "DataError: \"" + kFolder + "python.tfrecord\", record 0: which field is the data? It has label, name, x");
  EXPECT_EQ(MessageOf<DataError>(
                [&] { SampleIter(SamplesOf(records, {.data = "x", .num_classes = 2}), {.batch_size = 4}).Next(); }),
            "DataError: \"" + kFolder +
                "python.tfrecord\", record 2: label \"label\" is 2, expected a class, a whole "
                "number from 0 to 1");
}

TEST_F(RecordsTest, DamagedTfRecords) {
  const std::string whole = ReadFile(kFolder + "python.tfrecord");
  const auto message = [&](const std::string& bytes, const TfRecordOptions& options = {}) {
    const std::string path = Write("f", bytes);
    const std::string text = MessageOf<DataError>([&] {
      const RecordSourcePtr records = OpenTfRecords({path}, options);
      for (int64_t i = 0; i < records->records(); ++i) records->Read(i);
    });
    return text.substr(0, 11) + text.substr(std::min(text.size(), 13 + path.size()));
  };
  std::string wrong = whole;
  wrong[20] ^= 1;
  EXPECT_EQ(message(wrong), "DataError: , record 0: damaged: its checksum is another");
  wrong = whole;
  wrong[2] ^= 1;
  EXPECT_EQ(message(wrong), "DataError: , record 0: the checksum of its length is another: not a TFRecord file");
  EXPECT_EQ(message(whole.substr(0, whole.size() - 1)), "DataError: , record 3: cut off: it has 63 bytes");
  EXPECT_EQ(message(whole.substr(0, 79 + 5)), "DataError: , record 1: cut off within its header");
  EXPECT_EQ(message(whole, {.record_bytes = 62}), "DataError: , record 0: it has 63 bytes, the limit is 62");
  DamageEverywhere(whole, whole.size(), 1, [](const std::string& path) { return OpenTfRecords({path}); });
}

// As gzip and Python's zlib pack them.
std::string Zlib(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  packed.resize(size);
  return packed;
}

TEST_F(RecordsTest, PackedTfRecords) {
  const std::string whole = ReadFile(kFolder + "python.tfrecord");
  const RecordSourcePtr plain = OpenTfRecords({kFolder + "python.tfrecord"});
  // Members may be strung together.
  const size_t half = whole.size() / 2;
  for (const std::string& packed :
       {Gzip(whole), Zlib(whole), Gzip(whole.substr(0, half)) + Gzip("") + Gzip(whole.substr(half)),
        Zlib(whole.substr(0, half)) + Zlib("") + Gzip("") + Zlib(whole.substr(half))}) {
    const RecordSourcePtr records = OpenTfRecords({Write("f.tfrecord.gz", packed)});
    ASSERT_EQ(records->records(), plain->records());
    EXPECT_EQ(records->Fingerprint(), plain->Fingerprint());
    for (const int64_t i : {3, 0, 2, 1, 3}) {
      EXPECT_EQ(records->Read(i).at("name").bytes, plain->Read(i).at("name").bytes) << i;
      EXPECT_EQ(records->Read(i).at("x").floats, plain->Read(i).at("x").floats) << i;
    }
  }
  EXPECT_EQ(OpenTfRecords({Write("none.gz", Gzip(""))})->records(), 0);

  const std::string packed = Gzip(whole);
  const auto message = [&](const std::string& bytes, const TfRecordOptions& options = {}) {
    const std::string path = Write("f", bytes);
    const std::string text = MessageOf<DataError>([&] { OpenTfRecords({path}, options); });
    return text.substr(0, 11) + text.substr(std::min(text.size(), 13 + path.size()));
  };
  EXPECT_EQ(message(packed.substr(0, packed.size() - 1)),
            "DataError: , record 4: cut off: the packed stream does not end");
  EXPECT_EQ(message(packed.substr(0, 11)), "DataError: , record 0: cut off: the packed stream does not end");
  EXPECT_EQ(message(Gzip(whole.substr(0, whole.size() - 1))), "DataError: , record 3: cut off: it has 63 bytes");
  EXPECT_EQ(message(Gzip("a text that is no TFRecord")),
            "DataError: , record 0: the checksum of its length is another: not a TFRecord file");
  EXPECT_EQ(message(packed, {.record_bytes = 62}), "DataError: , record 0: it has 63 bytes, the limit is 62");
  std::string wrong = packed;
  wrong[packed.size() - 6] ^= 1;  // the checksum of all
  EXPECT_EQ(message(wrong), "DataError: , record 4: damaged: incorrect data check");
  EXPECT_EQ(message(packed + "x").substr(0, 22), "DataError: , record 4:");
  DamageEverywhere(packed, packed.size(), 1, [](const std::string& path) { return OpenTfRecords({path}); });
}

// Content of several points, which cannot be packed well and which can: at any place, in any order, by any threads.
TEST_F(RecordsTest, PackedFilesAreReadAnywhere) {
  PhiloxStream stream(1, "content");
  std::string content;
  while (content.size() < (size_t{6} << 20)) {
    const size_t size = 1 + stream.Below(5000);
    if (stream.Below(4) == 0) {
      content.append(size * 10, static_cast<char>(stream.Below(256)));
    } else {
      for (size_t i = 0; i < size; ++i) content += static_cast<char>(stream.Below(100));
    }
  }
  const size_t third = content.size() / 3;
  PackedFile::Limits limits = PackedFile::LimitsOf(1);
  for (const std::string& packed :
       {Gzip(content), Zlib(content), Gzip(content.substr(0, third)) + Gzip(content.substr(third)),
        Zlib(content.substr(0, third)) + Zlib(content.substr(third))}) {
    const RecordFile file(Write("packed", packed), std::make_shared<OpenFiles>());
    PackedFile whole(&file, std::exchange(limits, {.points = 4, .idle = 2}));  // then fewer than there are blocks
    std::string scanned(third, '\0');
    ASSERT_EQ(whole.Scan(scanned.data(), std::ssize(scanned)), std::ssize(scanned));
    EXPECT_TRUE(content.starts_with(scanned));
    ASSERT_EQ(whole.Scan(nullptr, std::ssize(content)), std::ssize(content) - std::ssize(scanned));
    EXPECT_EQ(whole.Scan(nullptr, 1), 0);
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        PhiloxStream places(thread, "places");
        for (int i = 0; i < 25; ++i) {
          const size_t offset = places.Below(content.size()),
                       size = std::min(places.Below(100'000), content.size() - offset);
          std::string got(size, '\0');
          whole.Read(static_cast<int64_t>(offset), std::ssize(got), got.data());
          wrong += got != std::string_view(content).substr(offset, size);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    char byte;
    EXPECT_EQ(MessageOf<DataError>([&] { whole.Read(std::ssize(content), 1, &byte); }),
              "DataError: cut off since it was opened");
  }
}

TEST_F(RecordsTest, TarsOfAllForms) {
  for (const std::string form : {"ustar", "gnu", "pax"}) {
    const std::string path = kFolder + "python_" + form + ".tar";
    const RecordSourcePtr records = OpenTars({path});
    ASSERT_EQ(records->records(), 3) << form;
    const std::string folder = form == "ustar" ? "shard" : std::string(120, 'a');
    EXPECT_EQ(records->Name(1), "\"" + path + "\", record \"" + folder + "/0001\"");
    EXPECT_EQ(records->Read(1).at("txt").bytes, std::vector<std::string>{"text 1"});
    EXPECT_EQ(records->Read(2).at("cls").bytes, std::vector<std::string>{"0"});
    EXPECT_EQ(CountClasses(*records, {.data = "cls"}), 2);
    DamageEverywhere(ReadFile(path), 2500, 3, [](const std::string& damaged) { return OpenTars({damaged}); });
  }
  // In what fills the last block: records may be missing behind it.
  const std::string whole = ReadFile(kFolder + "python_ustar.tar"), cut = Write("cut", whole.substr(0, 3584 + 200));
  EXPECT_EQ(MessageOf<DataError>([&] { OpenTars({cut}); }),
            "DataError: \"" + cut + "\", byte 3585: cut off within the last block of a file in it");
  const std::string zeros = Write("zeros", "some text that is no archive" + std::string(1000, 'x'));
  EXPECT_EQ(MessageOf<DataError>([&] { OpenTars({zeros}); }),
            "DataError: \"" + zeros + "\", byte 0: not a tar archive, or one that is packed");
  EXPECT_NE(MessageOf<DataError>([&] {
              OpenTars({kFolder + "python_gnu.tar"}, {.record_bytes = 6});
            }).find("has more than 6 bytes"),
            std::string::npos);
}

TEST_F(RecordsTest, ImageFolders) {
  const std::string png = ReadFile(kFolder + "pillow_rgb.png"), jpg = ReadFile(kFolder + "pillow_rgb.jpg");
  Write("dogs/b.png", png);
  Write("dogs/more/a.JPG", jpg);
  Write("cats/1.jpeg", jpg);
  Write("cats/.hidden.jpg", "no image");
  Write("cats/notes.txt", "no image");
  const RecordSourcePtr records = OpenImageFolder(folder_);
  EXPECT_EQ(records->classes(), (std::vector<std::string>{"cats", "dogs"}));
  ASSERT_EQ(records->records(), 3);
  EXPECT_EQ(records->Name(2), "\"" + folder_ + "/dogs/more/a.JPG\"");
  const RecordOptions options{.num_classes = 2,
                              .image = {.rows = 8, .columns = 8, .crop = ImageCrop::kResized, .mirror = true},
                              .augment = true};
  const auto batches = [&](uint64_t seed, int workers) {
    RecordOptions seeded = options;
    seeded.seed = seed;
    SampleIter iter(SamplesOf(records, seeded), {.batch_size = 3, .workers = workers});
    std::vector<HostTensor> data;
    for (int sweep = 0; sweep < 3; ++sweep) {
      data.push_back(iter.Next()->data[0]);
      iter.Reset();
    }
    return data;
  };
  const std::vector<HostTensor> first = batches(1, 1);
  EXPECT_EQ(batches(1, 3), first);
  EXPECT_NE(batches(2, 1), first);
  EXPECT_NE(first[0], first[1]);  // another in each sweep
  Write("dogs/c.png", png.substr(0, 1000));
  const std::string message = MessageOf<DataError>([&] {
    SampleIter iter(SamplesOf(OpenImageFolder(folder_), options), {.batch_size = 4});
    iter.Next();
  });
  EXPECT_TRUE(message.starts_with("DataError: \"" + folder_ + "/dogs/c.png\": damaged: ")) << message;
  fs::create_directories(folder_ + "/empty");
  EXPECT_EQ(MessageOf<DataError>([&] { OpenImageFolder(folder_); }),
            "DataError: folder \"" + folder_ + "/empty\" has no .jpg, .jpeg or .png files");
  EXPECT_EQ(MessageOf<DataError>([&] {
              OpenImageFolder(folder_, {.classes = {"cats", "dog"}});
            }),
            "DataError: folder \"" + folder_ + "\": \"dogs\" is none of the 2 classes; did you mean \"dog\"?");
  const std::string only = "what is in no folder of a class can be predicted, but neither trained nor tested on";
  for (const std::vector<std::string>& classes : {std::vector<std::string>(), {"cats", "dogs"}}) {
    EXPECT_EQ(MessageOf<DataError>([&] { OpenImageFolder(folder_ + "/cats", {.classes = classes}); }),
              "DataError: folder \"" + folder_ + "/cats\" has no folders in it, one for each class of images; " + only);
  }
  EXPECT_EQ(
      MessageOf<DataError>([&] { OpenImageFolder(folder_ + "/dogs/b.png"); }),
      "DataError: \"" + folder_ + "/dogs/b.png\" is a file, not a folder with one for each class of images; " + only);
  EXPECT_EQ(MessageOf<DataError>([&] { OpenImageFolder("nowhere"); }),
            "DataError: folder \"nowhere\": No such file or directory");
}

// Of what is passed over, and of colours that get lost.
TEST_F(RecordsTest, ImageFoldersThatAreNotTakenAsTheyAreAreWarnedOf) {
  const auto said = [&](const std::string& settings, const OpenOptions& options) {
    const LogLines log;
    OpenData("images:" + folder_ + settings, options);
    return log.text();
  };
  const std::string grey = ReadFile(kFolder + "pillow_grey.png");
  for (const char* name : {"a/1.png", "b/1.png", "b/2.png"}) Write(name, grey);
  const OpenOptions training{.sample = {1, 28, 28}, .training = true};
  EXPECT_EQ(said("", training), "");
  for (const char* name : {"a/x.webp", "b/x.BMP", "b/deep/y.bmp", "b/.z.bmp", "b/notes.txt"}) Write(name, "?");
  const std::string passed = "folder \"" + folder_ +
                             "\": 3 .jpg, .jpeg and .png are read, other images are not: 2 .bmp, "
                             "1 .webp\n";
  EXPECT_EQ(said("", training), passed);
  EXPECT_EQ(said("", {.predicting = true}), passed);
  EXPECT_EQ(said("", {}), "");  // what a training is judged by was looked at with the training
  Write("b/2.png", ReadFile(kFolder + "pillow_rgb.png"));
  EXPECT_EQ(said("", training),
            passed + "folder \"" + folder_ +
                "\": of 3 images that were looked at, 1 are in colour, but the model takes grey ones; channels=3 keeps "
                "the colours for a model by name, channels=1 says that grey is meant\n");
  for (const char* settings : {"?channels=1", "?channels=3"}) EXPECT_EQ(said(settings, training), passed);
  EXPECT_EQ(said("", {.sample = {3, 28, 28}, .training = true}), passed);
}

TEST_F(RecordsTest, ImagesWithoutClasses) {
  Write("new/b.png", ReadFile(kFolder + "pillow_rgb.png"));
  Write("new/a.jpg", ReadFile(kFolder + "pillow_rgb.jpg"));
  Write("new/notes.txt", "no image");
  const ImageFolderOptions options{.classes = {"cats", "dogs"}, .unlabelled = true};
  const RecordSourcePtr records = OpenImageFolder(folder_ + "/new", options);
  ASSERT_EQ(records->records(), 2);
  EXPECT_EQ(records->Name(0), "\"" + folder_ + "/new/a.jpg\"");
  EXPECT_FALSE(records->Read(0).contains("label"));
  EXPECT_EQ(records->classes(), options.classes);
  // Samples of them are called as they are.
  const SampleSourcePtr samples = SamplesOf(records, {.unlabelled = true, .image = {.rows = 4, .columns = 4}});
  EXPECT_EQ(samples->Name(1), records->Name(1));
  EXPECT_EQ(ChooseSamples(samples, {1})->Name(0), records->Name(1));
  const RecordSourcePtr file = OpenImageFolder(folder_ + "/new/b.png", options);
  ASSERT_EQ(file->records(), 1);
  EXPECT_EQ(file->Read(0).at("image").bytes, records->Read(1).at("image").bytes);
  EXPECT_NE(file->Fingerprint(), OpenImageFolder(folder_ + "/new/a.jpg", options)->Fingerprint());
  // Where there are folders, they are of classes.
  Write("dogs/1.png", ReadFile(kFolder + "pillow_rgb.png"));
  EXPECT_EQ(MessageOf<DataError>([&] { OpenImageFolder(folder_, options); }),
            "DataError: folder \"" + folder_ + "\": \"new\" is none of the 2 classes; known: cats, dogs");
  fs::remove_all(folder_ + "/new");
  EXPECT_EQ(OpenImageFolder(folder_, options)->Read(0).at("label").ints, std::vector<int64_t>{1});
  fs::create_directories(folder_ + "/empty");
  EXPECT_EQ(MessageOf<DataError>([&] { OpenImageFolder(folder_ + "/empty", options); }),
            "DataError: folder \"" + folder_ + "/empty\" has no .jpg, .jpeg or .png files");
}

TEST(ImageFolder, WrittenItIsReadAsTheSameImages) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/written";
  const ImageSet digits = DrawDigits(30, 1);
  WriteImageFolder(digits, folder);
  const RecordSourcePtr records = OpenImageFolder(folder);
  EXPECT_EQ(records->classes(), (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
  ASSERT_EQ(records->records(), 30);
  const ImageOptions whole{.channels = 1, .rows = 28, .columns = 28};
  for (int64_t i = 0; i < 30; ++i) {
    const std::string file =
        fmt::format("{}/{}/{:06}.png", folder, static_cast<int>(digits.labels.At(i)), static_cast<int>(i));
    const HostTensor image = ReadImageFile(file, whole);
    EXPECT_LT(MaxAbsDiff(image, digits.images.Slice(0, i, i + 1).Reshape({1, 28, 28})), 0.51 / 255) << file;
  }
  EXPECT_EQ(ReadImageFile(folder + "/3/" + fs::directory_iterator(folder + "/3")->path().filename().string(),
                          {.rows = 5, .columns = 7})
                .shape(),
            Shape({3, 5, 7}));
  EXPECT_NE(MessageOf<DataError>([&] { ReadImageFile(folder + "/none.png", whole); }), "");
  EXPECT_NE(MessageOf<DataError>([&] { WriteImageFolder(digits, "/dev/null/x"); }), "");
}

TEST(ClassNames, AreKeptWithAModel) {
  Model model;
  EXPECT_TRUE(ClassNames(model).empty());
  SetClassNames({"cat", "a dog"}, &model);
  EXPECT_EQ(ClassNames(model), (std::vector<std::string>{"cat", "a dog"}));
  EXPECT_EQ(model.metadata.at(kClassesKey), "cat\na dog\n");
}

}  // namespace
}  // namespace bindery
