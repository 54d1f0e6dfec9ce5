// The protocol of the threaded engine, without its threads: who may use a variable when. Private to engine/.
//
// Every variable has a queue of pending accesses in push order, shared ones (reads) and exclusive ones (writes and
// updates). An access is *granted* when nothing that excludes it is ahead of it: a shared one when no exclusive access
// is ahead, an exclusive one when it is at the head. So the granted accesses of a variable are always the head alone,
// or a run of shared ones from the head on. An access leaves the queue when it is finished, or when a thread gives up
// waiting for it; whoever nothing excludes any more is granted. A *claim* is a set of accesses, at most one per
// variable; it may go ahead when all are granted. Claims are entered whole, under one lock, so all queues agree on one
// order and nothing can wait in a circle.
//
// Records are intrusive and belong to the claim: nothing here allocates. Not thread safe: the engine's mutex protects
// it.
#pragma once

#include <span>

#include "engine/operation.h"

namespace bindery {

struct Claim;

struct PendingAccess {
  Claim* claim = nullptr;
  Var* var = nullptr;
  PendingAccess* previous = nullptr;
  PendingAccess* next = nullptr;
  bool exclusive = false;
  bool granted = false;
};

struct Claim {
  int missing = 0;       // accesses not granted yet
  bool waiting = false;  // a thread in Wait(var), not an operation; its only access is exclusive
};

// Appends `accesses` (of one claim) to their variables' queues. True if all are granted at once.
inline bool Enter(Claim& claim, std::span<PendingAccess> accesses) {
  claim.missing = 0;
  for (PendingAccess& access : accesses) {
    Var& var = *access.var;
    access.previous = var.last;
    access.next = nullptr;
    access.granted = !var.last || (!access.exclusive && !var.last->exclusive && var.last->granted);
    (var.last ? var.last->next : var.first) = &access;
    var.last = &access;
    claim.missing += !access.granted;
  }
  return claim.missing == 0;
}

// Takes an access that is finished or given up out of its queue; calls ready(claim) for every claim that may go ahead
// now. `ready` may take an exclusive access that was just granted out again.
template <class Ready>
void Leave(PendingAccess& access, const Ready& ready) {
  Var& var = *access.var;
  PendingAccess* head = access.next;
  (head ? head->previous : var.last) = access.previous;
  (access.previous ? access.previous->next : var.first) = head;
  const bool alone = head && head->exclusive;
  // Behind others, shared ones go ahead where a waiter gave up that stood between them and such as are granted.
  if (access.previous && (alone || access.previous->exclusive || !access.previous->granted)) return;
  while (head && !head->granted) {
    PendingAccess* next = head->next;
    head->granted = true;
    if (--head->claim->missing == 0) ready(*head->claim);
    if (alone || !next || next->exclusive) return;
    head = next;
  }
}

}  // namespace bindery
