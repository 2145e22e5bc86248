// A small model that trains: rows of a table, an Elman cell over them, the mean of the squares of its states.
#pragma once

#include <memory>
#include <string>

#include "stepnet/nets/net.h"
#include "tested_devices.h"

namespace stepnet {

class SmallTraining {
 public:
  // Makes the net of an iteration for the device, with parameters and optimizer as they start.
  explicit SmallTraining(const RunOptions& options);

  // What one iteration hands on to the next: parameters, moments, the number of iterations. Copies on the host.
  NamedInputs Kept() const;
  void SetKept(const NamedInputs& kept);
  // Row numbers of the table for each step and sequence, of which one may be bad.
  void SetRows(std::int32_t bad_row = 0);
  // Runs an iteration to its end.
  void Iterate();
  const Net& net() const { return *net_; }
  // The operator that first changes what is kept.
  int first_update() const { return first_update_; }

 private:
  std::vector<std::string> kept_;
  int first_update_ = -1;
  std::unique_ptr<Workspace> workspace_ = std::make_unique<Workspace>();
  std::unique_ptr<Net> net_;
};

}  // namespace stepnet
