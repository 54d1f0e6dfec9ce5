// The processes that mpirun, or srun, has started, as those that train together (kvstore/processes.h):
//
//   mpirun -n 4 --host a,b ./program
//
//   TrainerOptions options{.processes = MpiProcesses()};
//
// By Open MPI 4 or 5 (libmpi.so.40), which is opened by the first call. A program that has initialised MPI by itself
// ends it by itself; otherwise it ends when the last owner of these processes lets go of them: keep one in main, since
// MPI wants to be ended by the thread that began it. There, processes wait for each other.
#pragma once

#include "kvstore/processes.h"

namespace bindery {

// Has this program been started as one of several, going by the variables that mpirun and srun set?
bool StartedByMpi();

// One for the whole program. Throws DeviceError, saying what to install, where there is no Open MPI, or one that lets
// only one thread call it; Error after MPI has ended.
ProcessesPtr MpiProcesses();

}  // namespace bindery
