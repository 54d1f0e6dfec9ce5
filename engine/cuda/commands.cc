#include "engine/cuda/commands.h"

#include <cstring>

namespace bindery::cuda {
namespace {

CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

void Commands::Clear() {
  list_.clear();
  arguments_.clear();
  plans_.clear();
  work_ = 0;
  numbers_ = false;
  may_repeat_ = true;
}

size_t Commands::AddArguments(const void* arguments, size_t bytes) {
  const size_t begin = arguments_.size();
  arguments_.resize(begin + (bytes + sizeof(Sixteen) - 1) / sizeof(Sixteen));
  if (bytes > 0) std::memcpy(arguments_.data() + begin, arguments, bytes);
  return begin;
}

void Commands::Launch(CUfunction kernel, const char* name, const void* arguments, size_t bytes, unsigned blocks,
                      unsigned threads) {
  list_.push_back({.kind = Kind::kLaunch,
                   .blocks = blocks,
                   .threads = threads,
                   .kernel = kernel,
                   .name = name,
                   .arguments = AddArguments(arguments, bytes),
                   .bytes = bytes});
  ++work_;
}

void Commands::Call(LibraryFunction function, const char* name, const std::shared_ptr<const void>& plan,
                    std::span<void* const> addresses) {
  list_.push_back({.kind = Kind::kCall,
                   .function = function,
                   .plan = plan.get(),
                   .name = name,
                   .arguments = AddArguments(addresses.data(), addresses.size_bytes()),
                   .bytes = addresses.size_bytes()});
  plans_.push_back(plan);
  ++work_;
}

void Commands::Call(const std::shared_ptr<AcrossGpus>& across) {
  list_.push_back({.kind = Kind::kCallAcross, .across = across.get()});
  plans_.push_back(across);
  may_repeat_ = false;
  ++work_;
}

void Commands::Copy(const CopyCommand& copy) {
  list_.push_back({.kind = Kind::kCopy, .copy = copy});
  // What a graph makes of a copy between contexts depends on both GPUs; one by one it is the driver's business.
  may_repeat_ &= copy.kind != CopyKind::kBetween;
  ++work_;
}

void Commands::Fill(void* to, unsigned char value, size_t bytes) {
  list_.push_back({.kind = Kind::kFill, .value = value, .bytes = bytes, .to = to});
  ++work_;
}

void Commands::NumberPiece(int piece) {
  list_.push_back({.kind = Kind::kNumberPiece, .piece = piece});
  numbers_ = true;
  ++work_;
}

void Commands::EndPiece(int piece, bool of_part) {
  list_.push_back({.kind = Kind::kEndPiece, .marks = of_part || piece % kPiecesPerMark == 0, .piece = piece});
}

// Arguments by their bytes: a struct's padding may differ where nothing else does, and then it counts as changed. A plan
// by its address, which no other can have while a list keeps it.
bool Commands::operator==(const Commands& other) const {
  return list_ == other.list_ && arguments_ == other.arguments_;
}

void Commands::EnqueueOne(const Gpu& gpu, CUstream stream, const Command& command, bool captures) const {
  switch (command.kind) {
    case Kind::kLaunch: {
      void* arguments[] = {const_cast<Sixteen*>(arguments_.data() + command.arguments)};
      return gpu.CheckWork(gpu.api.launch_kernel(command.kernel, command.blocks, 1, 1, command.threads, 1, 1, 0, stream,
                                                 arguments, nullptr),
                           command.name);
    }
    case Kind::kCall: {
      const auto* const addresses = reinterpret_cast<void* const*>(arguments_.data() + command.arguments);
      const std::string problem =
          command.function(command.plan, std::span(addresses, command.bytes / sizeof(void*)), stream);
      return gpu.CheckLibrary(problem, command.name, captures ? nullptr : stream);
    }
    case Kind::kCallAcross: return command.across->Enqueue(stream);
    case Kind::kCopy: {
      const CopyCommand& copy = command.copy;
      switch (copy.kind) {
        case CopyKind::kToDevice:
          return gpu.CheckWork(gpu.api.memcpy_htod_async(Address(copy.to), copy.from, copy.bytes, stream),
                               "cuMemcpyHtoDAsync");
        case CopyKind::kToHost:
          return gpu.CheckWork(gpu.api.memcpy_dtoh_async(copy.to, Address(copy.from), copy.bytes, stream),
                               "cuMemcpyDtoHAsync");
        case CopyKind::kWithin:
          return gpu.CheckWork(gpu.api.memcpy_dtod_async(Address(copy.to), Address(copy.from), copy.bytes, stream),
                               "cuMemcpyDtoDAsync");
        case CopyKind::kBetween:
          return gpu.CheckWork(gpu.api.memcpy_peer_async(Address(copy.to), copy.to_context, Address(copy.from),
                                                         copy.from_context, copy.bytes, stream),
                               "cuMemcpyPeerAsync");
      }
      return;
    }
    case Kind::kFill:
      return gpu.CheckWork(gpu.api.memset_d8_async(Address(command.to), command.value, command.bytes, stream),
                           "cuMemsetD8Async");
    case Kind::kNumberPiece:
    case Kind::kEndPiece: return;  // by whoever knows the form
  }
}

void Commands::Enqueue(const Gpu& gpu, CUstream stream, const ProgressWords& words, uint64_t before, int* piece) const {
  *piece = 0;
  for (const Command& command : list_) {
    const uint64_t number = before + static_cast<uint64_t>(command.piece);
    if (command.kind == Kind::kEndPiece) {
      gpu.CheckWork(gpu.api.stream_write_value64(stream, words.done, number, 0), "cuStreamWriteValue64");
      *piece = command.piece;
    } else if (command.kind == Kind::kNumberPiece) {
      LaunchOne(gpu, stream, NumberPieceArgs{.piece = words.piece, .heard = words.heard, .number = number});
    } else {
      EnqueueOne(gpu, stream, command, false);
    }
  }
}

void Commands::Capture(const Gpu& gpu, CUstream stream, const ProgressWords& words) const {
  for (const Command& command : list_) {
    const auto number = static_cast<uint64_t>(command.piece);
    if (command.kind == Kind::kEndPiece) {
      if (command.marks) LaunchOne(gpu, stream, MarkPieceArgs{.word = words.within, .number = number});
    } else if (command.kind == Kind::kNumberPiece) {
      LaunchOne(gpu, stream,
                NumberPieceArgs{.piece = words.piece, .heard = words.heard, .base = words.base, .number = number});
    } else {
      EnqueueOne(gpu, stream, command, true);
    }
  }
}

}  // namespace bindery::cuda
