// The functions of MPI that are used: a table of typed pointers, from Open MPI's library, which is opened when a program
// asks for its processes. It need not be there to build, nor for programs that run alone; so its header is not included,
// and what is used of it is declared here, as mpi.h of Open MPI 4 and 5 has it: handles are pointers there, to objects
// of the library. (Other implementations have others: they are not for this table.)
#pragma once

#include "base/library_functions.h"

namespace bindery::mpi {

struct Communicator;  // ompi_communicator_t
struct Datatype;      // ompi_datatype_t
struct Errhandler;    // ompi_errhandler_t

inline constexpr const char* kLibrary = "libmpi.so.40";
inline constexpr int kSuccess = 0, kThreadSerialized = 2, kMaxErrorString = 256;

// Names are those of mpi.h; calls return kSuccess or an error's number.
struct MpiApi {
  LibraryFunctions find = {};
  Communicator* world = find("ompi_mpi_comm_world");
  Datatype* byte = find("ompi_mpi_byte");
  Errhandler* errors_return = find("ompi_mpi_errors_return");
  int (*initialized)(int* flag) = find("MPI_Initialized");
  int (*finalized)(int* flag) = find("MPI_Finalized");
  int (*init_thread)(int* argc, char*** argv, int required, int* provided) = find("MPI_Init_thread");
  int (*query_thread)(int* provided) = find("MPI_Query_thread");
  int (*finalize)() = find("MPI_Finalize");
  int (*error_string)(int error, char* text, int* length) = find("MPI_Error_string");
  int (*comm_dup)(Communicator* comm, Communicator** copy) = find("MPI_Comm_dup");
  int (*comm_free)(Communicator** comm) = find("MPI_Comm_free");
  int (*comm_set_errhandler)(Communicator* comm, Errhandler* handler) = find("MPI_Comm_set_errhandler");
  int (*comm_rank)(Communicator* comm, int* rank) = find("MPI_Comm_rank");
  int (*comm_size)(Communicator* comm, int* size) = find("MPI_Comm_size");
  int (*allgather)(const void* mine, int count, Datatype* type, void* all, int each, Datatype* all_type,
                   Communicator* comm) = find("MPI_Allgather");
  int (*alltoall)(const void* mine, int count, Datatype* type, void* all, int each, Datatype* all_type,
                  Communicator* comm) = find("MPI_Alltoall");
  int (*bcast)(void* data, int count, Datatype* type, int root, Communicator* comm) = find("MPI_Bcast");
};

}  // namespace bindery::mpi
