#include "kvstore/mpi/mpi_processes.h"

#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/parse_number.h"
#include "kvstore/mpi/mpi_api.h"

namespace bindery {
namespace {

using mpi::MpiApi;

MpiApi OpenMpi() {
  std::string problem;
  void* const library = OpenLibrary(mpi::kLibrary, {}, &problem, /*global=*/true);
  if (!library) {
    Throw<DeviceError>("processes need Open MPI (on Debian: apt-get install openmpi-bin), which cannot be opened: {}",
                       problem);
  }
  return {.find = LibraryFunctions(library, mpi::kLibrary)};
}

void CheckMpi(const MpiApi& api, int error, const char* call) {
  if (error == mpi::kSuccess) return;
  char text[mpi::kMaxErrorString] = "";
  int length = 0;
  api.error_string(error, text, &length);
  Throw("{} failed: {}", call, text);
}

// Begins MPI unless the program has; says whether it is to be ended here.
bool BeginMpi(const MpiApi& api) {
  int is = 0, provided = 0;
  api.finalized(&is);
  if (is) Throw("MPI has ended in this program, and cannot begin again");
  api.initialized(&is);
  if (is) {
    api.query_thread(&provided);
  } else {
    CheckMpi(api, api.init_thread(nullptr, nullptr, mpi::kThreadSerialized, &provided), "MPI_Init_thread");
  }
  if (provided < mpi::kThreadSerialized) {
    Throw<DeviceError>("MPI lets only one thread call it (MPI_THREAD_SERIALIZED is needed)");
  }
  return !is;
}

class ProcessesOfMpi final : public Processes {
 public:
  struct Begun {
    MpiApi api;
    bool ends = false;
    mpi::Communicator* comm = nullptr;
    int rank = 0, size = 1;
  };
  static Begun Begin() {
    Begun begun{.api = OpenMpi()};
    const MpiApi& api = begun.api;
    begun.ends = BeginMpi(api);
    CheckMpi(api, api.comm_dup(api.world, &begun.comm), "MPI_Comm_dup");
    api.comm_set_errhandler(begun.comm, api.errors_return);
    api.comm_rank(begun.comm, &begun.rank);
    api.comm_size(begun.comm, &begun.size);
    return begun;
  }

  explicit ProcessesOfMpi(const Begun& begun) : Processes(begun.rank, begun.size), begun_(begun) { ShareCores(); }
  // MPI ends where all have come. So that nobody waits there for one that waits elsewhere, each says that it ends.
  ~ProcessesOfMpi() override {
    Leave(std::uncaught_exceptions() > 0 ? "it ended by an error" : "its program has ended");
    int ended = 0;
    begun_.api.finalized(&ended);
    if (!parted() || ended) return;  // who ends in the middle of a call is for mpirun to deal with
    begun_.api.comm_free(&begun_.comm);
    if (begun_.ends) begun_.api.finalize();
  }

 private:
  void DoAllGather(const void* mine, void* all, int64_t bytes) override {
    const auto count = static_cast<int>(bytes);
    const MpiApi& api = begun_.api;
    Called(api.allgather(mine, count, api.byte, all, count, api.byte, begun_.comm), "MPI_Allgather");
  }
  void DoBroadcast(void* data, int64_t bytes) override {
    Called(begun_.api.bcast(data, static_cast<int>(bytes), begun_.api.byte, 0, begun_.comm), "MPI_Bcast");
  }
  void DoAllToAll(const void* mine, void* all, int64_t bytes) override {
    const auto count = static_cast<int>(bytes);
    const MpiApi& api = begun_.api;
    Called(api.alltoall(mine, count, api.byte, all, count, api.byte, begun_.comm), "MPI_Alltoall");
  }
  void Called(int error, const char* call) { CheckMpi(begun_.api, error, call); }

  Begun begun_;
};

}  // namespace

bool StartedByMpi() {
  const auto count = [](const char* name) {
    const char* const text = std::getenv(name);
    return text ? ParseNumber<int>(text).value_or(1) : 1;
  };
  // Open MPI's mpirun; srun with PMIx or PMI2.
  const bool by_slurm = std::getenv("PMIX_RANK") || std::getenv("PMI_RANK");
  return count("OMPI_COMM_WORLD_SIZE") > 1 || (by_slurm && count("SLURM_NTASKS") > 1);
}

ProcessesPtr MpiProcesses() {
  static std::mutex mutex;
  static std::weak_ptr<Processes> last;
  const std::lock_guard lock(mutex);
  ProcessesPtr processes = last.lock();
  if (!processes) last = processes = std::make_shared<ProcessesOfMpi>(ProcessesOfMpi::Begin());
  return processes;
}

}  // namespace bindery
