// The checkpoint of the best epoch so far, in the folder of a run that keeps it (FitOptions::keep_best).
//
// Each checkpoint of such a run says of itself whether it is that of the best epoch so far; the newest one that says so
// is it. So nothing beside the files could disagree with them, whatever is killed when: a better one is there whole
// before the last one goes. Where CheckpointStore::Save writes a checkpoint of such a run, it spares the best one.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "train/checkpoint/checkpoint.h"

namespace bindery {

// In Checkpoint::info of any run that judges its epochs: by what, and the best value so far, "validation accuracy 0.98".
inline constexpr const char* kBestValue = "best";

// What it says, in Checkpoint::info. A run that does not keep the best one says nothing.
void SayWhetherBest(bool is_best, std::map<std::string, std::string>* info);
bool KeepsBest(const std::map<std::string, std::string>& info);
bool IsOfBestEpoch(const std::map<std::string, std::string>& info);

// Its path; no value if there is none. Those whose header is damaged are passed over.
std::optional<std::string> FindBest(const CheckpointStore& store);
// No value if there is none; throws CheckpointError if it is damaged.
std::optional<Checkpoint> LoadBest(const CheckpointStore& store);
// Makes it the newest one, from which a resume goes on: later ones are renamed (set_aside.h), the newest first, so that
// the folder is that of a run at every moment; each is logged. Returns its path; no value if there is none. Throws
// CheckpointError if it is damaged; DataError if one cannot be renamed: those that were have their names again.
std::optional<std::string> GoBackToBest(const CheckpointStore& store);

}  // namespace bindery
