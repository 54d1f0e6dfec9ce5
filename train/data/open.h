// Data sets by a line of text, as a command line and a file have them:
//
//   csv:iris.csv?label=species               images:flowers?resize=256&size=224&crop=resized&mirror=1
//   npy:x.npy?labels=y.npy                   tar:shards/*.tar?size=64
//   npz:data.npz?data=x&label=y              tfrecord:train.tfrecord?data=x&label=y
//
// KIND:PATH, and settings NAME=VALUE behind a "?", with "&" between them. Which there are: docs/data.md. Files of tar
// and tfrecord may be several, with commas between; "*" and "[...]" stand for names as in a shell. All kinds take
// "shard=I/N": every N-th sample from number I on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbol/model.h"
#include "train/data/images/transform.h"
#include "train/data/samples/sample_source.h"
#include "train/data/tables/categories.h"
#include "train/data/tables/scaling.h"

namespace bindery {

// Of Model::metadata: the names of classes, a line each; and settings as they stand behind the "?", of those that
// decide which numbers the model sees of a sample: resize, crop, channels, rows, columns, mean, std; scale; missing,
// leave_out, features, categories; of columns that are scaled, mean and std, or min and max, a number for each. And of
// a table label, its column; label_scale with numbers of the same kind, where the network scales labels
// (train/label_scaling.h).
inline constexpr const char *kClassesKey = "classes", *kPreprocessingKey = "bindery.preprocessing";

struct OpenOptions {
  // What the model takes of each sample, if it is known: images without a size of their own get this one; rows of
  // numbers, or of numbers of a matrix, become an image of one channel where a model takes images.
  Shape sample = {};
  // What may be inputs of a model, of these types: arrays of npz:FILE that are called like these are the data, unless
  // the text says which array is. Shapes are not looked at.
  std::vector<SampleArray> inputs = {};
  std::vector<std::string> classes = {};  // in the order of their numbers; empty: those of the data
  bool training = false;                  // draw what is random
  bool predicting = false;                // images in no folder of a class will do: they have no labels
  // A sample's label is the number of one class: of arrays, (N, 1) numbers are (N), and (N, K) of a 1 among zeros each,
  // "one hot", are the numbers of K classes.
  bool one_class = false;
  uint64_t seed = 0;
  // In training: parts of the samples that SplitSource will take away, one after another. What is computed of a table,
  // the numbers of scale and label_scale, and categories, is of those that are left.
  std::vector<double> held_back = {};
  std::string preprocessing = {};  // of the model, for what the text does not say; where it differs, a line is logged
};

struct OpenedData {
  SampleSourcePtr samples;  // "data", or inputs, and "softmax_label"; with the classes and preprocessing as metadata
  std::vector<std::string> classes = {};  // their names, where they have any
  int64_t num_classes = 0;                // 0: labels are no classes, or there are none
  std::string preprocessing = {};         // without what is random; for the model that is trained on them
  // What each label of a sample is called: its column in csv:FILE, an empty text without a header. Else: no names.
  std::vector<std::string> label_names = {};
};

// The names of a model's classes, as its metadata keep them; empty: it has none.
std::vector<std::string> ClassNames(const Model& model);
void SetClassNames(const std::vector<std::string>& names, Model* model);
// The preprocessing of the samples that a model was trained on, for OpenOptions; empty: it has none.
std::string Preprocessing(const Model& model);
void SetPreprocessing(const std::string& settings, Model* model);
// The same for ReadImageFile: the images that the model was trained on, in their size. Throws DataError if the model
// does not say.
ImageOptions PreprocessingOfImages(const Model& model);
// The same for ScaleColumns: how the columns were scaled that the model was trained on; kNone if they were not. Throws
// DataError for damaged numbers.
ColumnScaling ScalingOfColumns(const Model& model);
// Which of a table's features were words, and which categories each of them had: for ExpandCategories, before they are
// scaled. Throws DataError for damaged ones.
std::vector<ColumnCategories> CategoriesOfColumns(const Model& model);
// How labels that are numbers were scaled; kNone if they were not. Throws DataError for damaged numbers.
ColumnScaling ScalingOfLabels(const Model& model);
// And what took the place of missing values, behind the scaling; none, if they were errors or their rows were left out.
std::optional<float> MissingOfColumns(const Model& model);

// Does it begin with a kind and a colon?
bool IsDataText(std::string_view text);
// The same data from any current folder: all paths in it are absolute. What is no such text stays as it is.
std::string WithAbsolutePaths(const std::string& text);
// The text with label_kind=numbers, if the labels of its kind may be numbers and it does not say what they are:
// "csv:a.csv" -> "csv:a.csv?label_kind=numbers".
std::string WithNumbersAsLabels(const std::string& text);
// Throws DataError: unknown kinds and settings, with the nearest name; what the files hold.
OpenedData OpenData(const std::string& text, const OpenOptions& options = {});

}  // namespace bindery
