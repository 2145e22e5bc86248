// What a net is given: tensors from files, generated tensors, and what is still missing.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

// --input, --input_pb, --input_fill, --shape.
std::vector<FlagUse> InputFlags();

enum class ValuesUse { kRead, kUnread };  // unread: blobs of --shape need no values

// What these flags say. Throws UsageError for flags that mean nothing, kInputOutput, kOutOfMemory.
NamedTensors ReadInputs(ValuesUse use = ValuesUse::kRead);

// Whether blobs of --shape are filled with random numbers.
bool FillsAtRandom();

// Throws kInvalidArgument that lists every blob that the net reads before it writes it and that holds nothing in
// `workspace`, each with the operator that reads it, and the flags that give it.
void CheckInputs(const NetDef& net, const Workspace& workspace);

// Throws kInvalidArgument that lists what --input and --shape name and neither one of the nets takes from outside, as
// it does not read it or writes it before, nor is in `also_read`, in the file `path`; says on standard error what else
// of `fed` is so.
void CheckRead(const std::string& path, const std::vector<const NetDef*>& nets, const NamedTensors& fed,
               const std::vector<std::string>& also_read = {});

// Says on standard error that none of the nets takes any of the blobs that --init_net gives, where that is so.
void RemarkOnUnread(const std::vector<const NetDef*>& nets, const std::vector<std::string>& given);

}  // namespace stepnet::runner
