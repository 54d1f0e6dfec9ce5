#include "train/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "proto/checkpoint.pb.h"
#include "symbol/ops.h"
#include "tests/test_folder.h"
#include "train/checkpoint/checkpoint_format.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

Symbol SmallNet() {
  return SoftmaxOutput(FullyConnected(Relu(BatchNorm(Variable("data"), {}, "bn1"), "relu1"), {.num_hidden = 3}, "fc1"),
                       {}, "softmax");
}

HostTensor RandomTensor(DType dtype, const Shape& shape, const std::string& name) {
  HostTensor tensor(dtype, shape);
  PhiloxStream random(1, name);
  auto* bytes = static_cast<unsigned char*>(tensor.raw());
  for (int64_t i = 0; i < tensor.bytes(); ++i)
    bytes[i] = static_cast<unsigned char>(dtype == DType::kBool ? random.Next() & 1 : random.Next());
  return tensor;
}

// All fields in use; bits of all kinds, NaNs among them.
Checkpoint MakeCheckpoint() {
  Checkpoint checkpoint;
  checkpoint.model.symbol = SmallNet();
  checkpoint.model.metadata = {{"author", "somebody"}};
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name = fmt::format("p{}_weight", i);
    checkpoint.model.params[name] = RandomTensor(dtype, {3, i + 1}, name);
  }
  checkpoint.model.params["scalar"] = RandomTensor(DType::kFloat64, {}, "scalar");
  checkpoint.model.params["nothing"] = HostTensor(DType::kFloat32, {4, 0, 2});
  checkpoint.model.aux["bn1_running_mean"] = HostTensor::From({2}, {1, -0.0f});
  checkpoint.optimizer_state["p0_weight:momentum"] = HostTensor::Full(DType::kFloat32, {3, 1}, 0.25);
  checkpoint.optimizer = "sgd(lr=0.1, momentum=0.9)";
  checkpoint.schedule = "constant(base=0.1)";
  checkpoint.step = 123456789012;
  checkpoint.epoch = 3;
  checkpoint.batch_in_epoch = 77;
  checkpoint.seed = 0xfedcba9876543210;
  checkpoint.iterator = {{"epoch", 3}, {"position", -5}};
  checkpoint.metric_totals = {1.5, -0.0, std::numeric_limits<double>::infinity(), 0.1};
  checkpoint.metrics = "accuracy";
  checkpoint.info = {{"devices", "cpu:0,cpu:1"}, {"empty", ""}, {"", "zero\0byte"}};
  return checkpoint;
}

void ExpectEqual(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.model.symbol.DebugString(), b.model.symbol.DebugString());
  EXPECT_EQ(a.model.params, b.model.params);
  EXPECT_EQ(a.model.aux, b.model.aux);
  EXPECT_EQ(a.model.metadata, b.model.metadata);
  EXPECT_EQ(a.optimizer_state, b.optimizer_state);
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(std::tie(a.step, a.epoch, a.batch_in_epoch, a.seed), std::tie(b.step, b.epoch, b.batch_in_epoch, b.seed));
  EXPECT_EQ(a.iterator, b.iterator);
  const auto bits = [](const std::vector<double>& values) {
    std::vector<uint64_t> result;
    for (const double value : values) result.push_back(std::bit_cast<uint64_t>(value));
    return result;
  };
  EXPECT_EQ(bits(a.metric_totals), bits(b.metric_totals));
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.info, b.info);
}

class CheckpointTest : public testing::Test {
 protected:
  // The message of the error that loading the file gives, without the file's name.
  std::string LoadError(const ModelLimits& limits = {}) const {
    try {
      LoadCheckpoint(path_, limits);
    } catch (const CheckpointError& error) {
      const std::string start = fmt::format("\"{}\": ", path_);
      EXPECT_TRUE(error.message().starts_with(start)) << error.what();
      return error.message().substr(std::min(start.size(), error.message().size()));
    }
    return "no error";
  }

  // Writes a file with this header and these bytes as tensors, all checksums of the frame right.
  void Craft(const proto::Checkpoint& header, const std::string& tensors = {}) const {
    CraftBytes(header.SerializeAsString(), header, tensors);
  }
  // The same of a header of these bytes, which may be no such message.
  void CraftBytes(const std::string& message, const proto::Checkpoint& header = {},
                  const std::string& tensors = {}) const {
    CheckpointPreamble preamble;
    std::memcpy(preamble.magic, kCheckpointMagic, 8);
    preamble.header_bytes = static_cast<int64_t>(message.size());
    preamble.header_checksum = Checksum(message.data(), preamble.header_bytes);
    const int64_t header_end = kPreambleBytes + preamble.header_bytes;
    const int64_t begin = header.tensor_size() > 0 ? NextTensor(header_end) : header_end;
    preamble.file_bytes = begin + static_cast<int64_t>(tensors.size());
    preamble.checksum = Checksum(&preamble, kPreambleChecked);
    std::string bytes(reinterpret_cast<const char*>(&preamble), kPreambleBytes);
    bytes += message;
    bytes.resize(static_cast<size_t>(begin), '\0');
    WriteFileAtomically(path_, bytes + tensors);
  }
  static proto::StoredTensor* AddTensor(proto::Checkpoint* header, const std::string& name,
                                        std::initializer_list<int64_t> dims) {
    proto::StoredTensor* tensor = header->add_tensor();
    tensor->set_name(name);
    tensor->set_checksum(Checksum(nullptr, 0));
    for (const int64_t dim : dims) tensor->add_dim(dim);
    return tensor;
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
  std::string path_ = folder_ + "/x.ckpt";
};

TEST_F(CheckpointTest, ReadsBackWhatWasSaved) {
  const Checkpoint checkpoint = MakeCheckpoint();
  SaveCheckpoint(checkpoint, path_);
  ExpectEqual(LoadCheckpoint(path_), checkpoint);
  SaveCheckpoint({}, path_);
  ExpectEqual(LoadCheckpoint(path_), {});
}

TEST_F(CheckpointTest, TensorsAreAlignedAndTheFileIsDeterministic) {
  SaveCheckpoint(MakeCheckpoint(), path_);
  const std::string bytes = ReadFile(path_);
  SaveCheckpoint(MakeCheckpoint(), path_);
  EXPECT_EQ(ReadFile(path_), bytes);
  const HostTensor last = MakeCheckpoint().optimizer_state.begin()->second;
  EXPECT_EQ(bytes.size() % kCheckpointAlignment, static_cast<size_t>(last.bytes()));
  EXPECT_EQ(std::memcmp(bytes.data() + bytes.size() - last.bytes(), last.raw(), last.bytes()), 0);
}

TEST_F(CheckpointTest, LargeTensors) {
  Checkpoint checkpoint;
  checkpoint.model.params["w"] = RandomTensor(DType::kFloat32, {1500, 1001}, "w");
  checkpoint.model.params["z"] = RandomTensor(DType::kInt8, {3000001}, "z");
  SaveCheckpoint(checkpoint, path_);
  ExpectEqual(LoadCheckpoint(path_), checkpoint);
}

TEST_F(CheckpointTest, AnyFlippedByteIsAnError) {
  SaveCheckpoint(MakeCheckpoint(), path_);
  const std::string bytes = ReadFile(path_);
  const int descriptor = ::open(path_.c_str(), O_WRONLY);
  ASSERT_GE(descriptor, 0);
  // Every byte of frame and header, and in the tensors' pages every byte around each beginning and some beyond.
  for (size_t i = 0; i < bytes.size(); i += i < kCheckpointAlignment + 100 || i % kCheckpointAlignment < 20 ? 1 : 211) {
    const char flipped = static_cast<char>(bytes[i] ^ (1 << i % 8));
    ASSERT_EQ(::pwrite(descriptor, &flipped, 1, static_cast<off_t>(i)), 1);
    ASSERT_NE(LoadError(), "no error") << "byte " << i;
    ASSERT_EQ(::pwrite(descriptor, &bytes[i], 1, static_cast<off_t>(i)), 1);
  }
  ::close(descriptor);
  ExpectEqual(LoadCheckpoint(path_), MakeCheckpoint());
}

TEST_F(CheckpointTest, TruncatedAnywhereIsAnError) {
  SaveCheckpoint(MakeCheckpoint(), path_);
  for (auto size = static_cast<int64_t>(fs::file_size(path_)) - 1; size >= 0; size -= size > 9000 ? 61 : 1) {
    ASSERT_EQ(::truncate(path_.c_str(), size), 0);
    ASSERT_NE(LoadError(), "no error") << size;
  }
}

TEST_F(CheckpointTest, MessagesSayWhere) {
  SaveCheckpoint(MakeCheckpoint(), path_);
  const std::string bytes = ReadFile(path_);
  const auto load = [&](const std::string& changed) {
    WriteFileAtomically(path_, changed);
    return LoadError();
  };
  const auto flip = [&](size_t at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    return load(changed);
  };
  EXPECT_EQ(load("hello, I am a text file, and not even a short one"),
            "this is not a checkpoint: it does not begin with \"BNDCKPT\"");
  EXPECT_EQ(load(bytes.substr(0, 20)), "the file was cut off after 20 bytes");
  EXPECT_EQ(load(bytes.substr(0, 5000)), fmt::format("the file was cut off: it has 5000 of {} bytes", bytes.size()));
  EXPECT_EQ(load(bytes + "x"),
            fmt::format("the file has {} bytes, but should end after {}", bytes.size() + 1, bytes.size()));
  EXPECT_EQ(flip(8), "its format is 3, this program reads format 2: it was written by a newer Bindery");
  std::string older = bytes;
  older[8] = 1;
  EXPECT_EQ(load(older), "its format is 1, this program reads format 2: it was written by an older Bindery");
  EXPECT_EQ(flip(20), "bytes 0..47 are damaged: the checksum is wrong");
  EXPECT_NE(flip(100).find("the header, bytes 48.."), std::string::npos);
  EXPECT_NE(flip(bytes.size() - 1).find("optimizer state \"p0_weight:momentum\", bytes "), std::string::npos);
  EXPECT_NE(
      flip(bytes.size() - 20).find("before optimizer state \"p0_weight:momentum\", are damaged: they are not zero"),
      std::string::npos);
}

TEST_F(CheckpointTest, OnlyRegularFiles) {
  EXPECT_EQ(LoadError(), "No such file or directory (errno 2)");
  path_ = folder_;
  EXPECT_EQ(LoadError(), "not a regular file");
  path_ = "/dev/zero";
  EXPECT_EQ(LoadError(), "not a regular file");
  path_ = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(LoadError(), "not a regular file");
  EXPECT_THROW(SaveCheckpoint({}, folder_ + "/none/x.ckpt"), DataError);
}

TEST_F(CheckpointTest, HugeSizesAreErrorsBeforeAnythingIsAllocated) {
  const auto error_of = [&](std::initializer_list<int64_t> dims) {
    proto::Checkpoint header;
    AddTensor(&header, "w", dims);
    Craft(header, "tiny");
    return LoadError();
  };
  EXPECT_EQ(error_of({int64_t{1} << 50}),
            "parameter \"w\" of float32 (1125899906842624) does not fit in the file's 4100 bytes");
  EXPECT_NE(error_of({int64_t{1} << 40, int64_t{1} << 40}).find("overflows"), std::string::npos);
  EXPECT_NE(error_of({std::numeric_limits<int64_t>::max()}).find("overflows"), std::string::npos);
  EXPECT_NE(error_of({int64_t{1} << 62, 1, 0}).find("4 bytes follow the last tensor"), std::string::npos);
  EXPECT_EQ(error_of({-1}), "parameter \"w\" has a negative extent, -1");
  EXPECT_EQ(error_of({1, 1, 1, 1, 1, 1, 1, 1, 1}), "parameter \"w\" has 9 axes, at most 8 are possible");

  // A file that is really that long, but for the disk.
  proto::Checkpoint header;
  const int64_t count = int64_t{1} << 40;
  AddTensor(&header, "w", {count})->set_dtype(proto::INT8);
  const std::string message = header.SerializeAsString();
  CheckpointPreamble preamble;
  std::memcpy(preamble.magic, kCheckpointMagic, 8);
  preamble.header_bytes = static_cast<int64_t>(message.size());
  preamble.header_checksum = Checksum(message.data(), preamble.header_bytes);
  preamble.file_bytes = kCheckpointAlignment + count;
  preamble.checksum = Checksum(&preamble, kPreambleChecked);
  WriteFileAtomically(path_, std::string(reinterpret_cast<const char*>(&preamble), kPreambleBytes) + message);
  if (::truncate(path_.c_str(), preamble.file_bytes) != 0)
    GTEST_SKIP() << "this file system has no files of a terabyte";
  EXPECT_EQ(LoadError(), "its tensors have more than 68719476736 bytes, the limit");
}

TEST_F(CheckpointTest, HostileHeaders) {
  proto::Checkpoint header;
  Craft(header);
  EXPECT_EQ(LoadError(), "no error");
  AddTensor(&header, "w", {0});
  AddTensor(&header, "w", {0});
  Craft(header);
  EXPECT_EQ(LoadError(), "parameter \"w\" is there twice");
  header.mutable_tensor(1)->set_role(proto::StoredTensor::AUX);
  Craft(header);
  EXPECT_EQ(LoadError(), "no error");

  header = proto::Checkpoint();
  header.set_step(-1);
  Craft(header);
  EXPECT_EQ(LoadError(), "step -1, epoch 0 and batch 0 are not all in 0..4611686018427387903");
  header.set_step(std::numeric_limits<int64_t>::max());
  Craft(header);
  EXPECT_EQ(LoadError(), "step 9223372036854775807, epoch 0 and batch 0 are not all in 0..4611686018427387903");

  header = proto::Checkpoint();
  for (int i = 0; i < 2; ++i) header.add_iterator()->set_key("a");
  Craft(header);
  EXPECT_EQ(LoadError(), "a name in the header is there twice");

  header = proto::Checkpoint();
  header.mutable_unknown_fields()->AddVarint(99, 1);
  Craft(header);
  EXPECT_EQ(LoadError(), "the header has fields that this program does not know");

  header = proto::Checkpoint();
  AddTensor(&header, "b", {1})->set_dtype(proto::BOOL);
  header.mutable_tensor(0)->set_checksum(Checksum("\2", 1));
  Craft(header, "\2");
  EXPECT_EQ(LoadError(), "parameter \"b\" has a bool that is neither 0 nor 1");

  header.set_model("nonsense");
  Craft(header);
  EXPECT_NE(LoadError().find("graph"), std::string::npos);

  header = proto::Checkpoint();
  for (int i = 0; i <= kMaxCheckpointFields; ++i) header.add_tensor();
  Craft(header);
  EXPECT_EQ(LoadError(), "the header has more than 1000000 entries");
  EXPECT_NE(LoadError({.file_bytes = 1000}).find("at most 1000 are possible here"), std::string::npos);
}

// Lengths and numbers of entries that say more than there is, or less, under checksums that are right.
TEST_F(CheckpointTest, CountsThatLie) {
  const std::string invalid = "the header is not a valid message";
  proto::Checkpoint header;
  proto::Count* entry = header.add_iterator();
  entry->set_key("batch");
  entry->set_value(3);
  const std::string good = header.SerializeAsString();
  CraftBytes(good);
  EXPECT_EQ(LoadError(), "no error");
  // Of the header: with bytes that are none of its own, and without its last ones.
  CraftBytes(good + std::string(5, '\0'));
  EXPECT_EQ(LoadError(), invalid);
  for (size_t size = 1; size < good.size(); ++size) {
    CraftBytes(good.substr(0, size));
    EXPECT_EQ(LoadError(), invalid) << size;
  }
  // Of an entry, whose length is the second byte: beyond the header's end, and so short that its rest is read as others.
  for (const int more : {1, 100}) {
    std::string longer = good;
    longer[1] = static_cast<char>(longer[1] + more);
    CraftBytes(longer);
    EXPECT_EQ(LoadError(), invalid) << more;
  }
  for (char length = 0; length < good[1]; ++length) {
    std::string shorter = good;
    shorter[1] = length;
    CraftBytes(shorter);
    EXPECT_NE(LoadError(), "no error") << int{length};
  }
  // Of tensors: one that the file has not, and one that the header has not.
  header = proto::Checkpoint();
  AddTensor(&header, "a", {1})->set_checksum(Checksum("1234", 4));
  Craft(header, "1234");
  EXPECT_EQ(LoadError(), "no error");
  proto::Checkpoint more = header;
  AddTensor(&more, "b", {1})->set_checksum(Checksum("5678", 4));
  Craft(more, "1234");
  EXPECT_NE(LoadError().find("does not fit in the file's"), std::string::npos) << LoadError();
  Craft(header, "12345678");
  EXPECT_EQ(LoadError(), "4 bytes follow the last tensor");
}

TEST_F(CheckpointTest, SavingRefusesWhatLoadingWould) {
  Checkpoint checkpoint;
  checkpoint.epoch = -1;
  EXPECT_THROW(SaveCheckpoint(checkpoint, path_), Error);
  EXPECT_FALSE(fs::exists(path_));
}

}  // namespace
}  // namespace bindery
