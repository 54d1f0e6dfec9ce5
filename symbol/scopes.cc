#include "symbol/symbol.h"

namespace bindery {
namespace {

thread_local NameScope* current_name_scope = nullptr;
thread_local AttrScope* current_attr_scope = nullptr;
thread_local OriginScope* current_origin_scope = nullptr;

}  // namespace

NameScope::NameScope(std::string prefix, bool nested) : outer_(current_name_scope), prefix_(std::move(prefix)) {
  if (nested && outer_ != nullptr) prefix_ = outer_->prefix_ + prefix_;
  current_name_scope = this;
}

NameScope::~NameScope() { current_name_scope = outer_; }

std::string NameScope::NextName(const std::string& op_lowercase) {
  return prefix_ + op_lowercase + std::to_string(counters_[op_lowercase]++);
}

NameScope* NameScope::Current() { return current_name_scope; }

AttrScope::AttrScope(Annotations annotations, bool nested)
    : outer_(current_attr_scope), merged_(std::move(annotations)) {
  if (nested && outer_ != nullptr) merged_.insert(outer_->merged_.begin(), outer_->merged_.end());
  current_attr_scope = this;
}

AttrScope::~AttrScope() { current_attr_scope = outer_; }

const Annotations& AttrScope::Current() {
  static const Annotations none;
  return current_attr_scope == nullptr ? none : current_attr_scope->merged_;
}

OriginScope::OriginScope(std::string origin) : outer_(current_origin_scope), origin_(std::move(origin)) {
  current_origin_scope = this;
}

OriginScope::~OriginScope() { current_origin_scope = outer_; }

const std::string& OriginScope::Current() {
  static const std::string none;
  return current_origin_scope == nullptr ? none : current_origin_scope->origin_;
}

Annotations Inherited(const Annotations& annotations) {
  Annotations inherited = annotations;
  inherited.erase("layout");
  inherited.erase("merge");
  inherited.erase("is_mean");
  return inherited;
}

}  // namespace bindery
