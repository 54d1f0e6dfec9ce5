// Samples of which one knows afterwards what they were.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/cli/data.h"
#include "train/data/samples/sample_source.h"

namespace bindery::cli {

// Notes what the iterator hands out: `labels` numbers of each sample, and its record's name, which `samples` knows;
// nullptr: nobody does. Not `labelled`: labels are noted, but not handed on, to a model that takes none.
TestData Noted(std::unique_ptr<DataIter> iter, bool labelled, SampleSourcePtr samples = nullptr, int64_t labels = 1);

// How often each label is there; of damaged samples none, if they are skipped.
LabelCounts LabelsOf(const SampleSource& samples, bool skip_damaged);
// Counts the labels that the iterator hands out, where these are classes: of each sample, or of each place of a text.
std::unique_ptr<DataIter> Counted(std::unique_ptr<DataIter> iter, std::shared_ptr<LabelCounts> counts);

}  // namespace bindery::cli
