// A session of ONNX Runtime, opened at run time: its library comes from a Python wheel, which has no headers. Of its C
// interface, whose functions keep their places for ever, this knows those that it calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindery/bindery.h"

namespace bindery::compare {

class OrtSession {
 public:
  // A model with one input; `threads` of an operator, the caller's among them. Throws Error with the library's words.
  OrtSession(const std::string& library, const std::string& model, int threads);
  ~OrtSession();
  OrtSession(const OrtSession&) = delete;

  // Takes and gives float32; the shapes of outputs are the library's. From any number of threads.
  std::vector<HostTensor> Run(const HostTensor& input) const;
  std::string version() const;

 private:
  struct Library;
  const std::unique_ptr<Library> library_;
  std::string input_;
  std::vector<std::string> outputs_;
};

}  // namespace bindery::compare
