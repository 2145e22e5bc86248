// The reverse pass: appends to a net the operators that compute its gradients.
//
// Works on any net whose operators have gradients in their registrations: blobs that several operators read (the parts
// are added by Sum), operators that work in place, nets that write a name several times. A value that the net
// overwrites and a gradient needs gets a name of its own, NAME_before, in the net that is returned; blobs hold in the
// end what they would hold without gradients.
//
// Gather gives the gradient of its table sparse, by rows. Where all of a blob's readers do, it stays so, and Concat
// joins the rows (of indices with one number of dimensions); otherwise SparseToDense makes it whole. Gradients of
// gradients are refused.
//
// What is not asked for is not computed. Nor do RecurrentNetwork operators keep anything for it where it is left out by
// a request `none`, and not by being no input: another call may then ask for it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/gradient_request.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct NetWithGradients {
  NetDef net;                                      // the operators of the net, then those of the gradients
  int num_forward = 0;                             // operators of the net, and copies of values that it overwrites
  std::map<std::string, GradientBlobs> gradients;  // of those of `inputs` that the losses depend on
};

// Gradients of the sum of all elements of all `losses` with respect to `inputs`, values that the net reads before it
// writes them. The gradient of a loss L starts as L_autogen_grad, ones of its dtype and shape. The gradient of x is
// called x_grad unless that name is taken or the gradient of another blob is the same value. Throws kInvalidNet, with
// the operator and the way from the loss to it, for operators that declare no gradient, for gradient operators on
// the way; and with all problems for nets that CheckNet refuses.
//
// `requests` says of some of the inputs that their gradients are not made (kNone), or that each run adds them to what
// blobs hold that exist before it (kAdd): before + gradient, as Add computes it. AddGradient does
// that behind all other operators, so that a run which fails in those leaves the sums as they are. Such a blob, x_grad,
// is in `gradients`, and is an input of the net: a run throws kTypeMismatch where it holds nothing or another dtype,
// kShapeMismatch for another shape. Throws kInvalidArgument for requests of what is none of `inputs`, and of gradients
// (kWrite, kAdd) that there are none of, as the losses do not depend on the input.
NetWithGradients AddGradients(const NetDef& net, const std::vector<std::string>& losses,
                              const std::vector<std::string>& inputs, const GradientRequests& requests = {});

// Does what AddGradients does, for losses whose gradients exist: `output_gradients` maps blobs of the net to the blobs
// that hold their gradients. Used for nets that are steps of larger ones. Gradients read copies of the blobs in
// `changing`, which others write, too.
NetWithGradients AddGradientsFrom(const NetDef& net, const std::map<std::string, std::string>& output_gradients,
                                  const std::vector<std::string>& inputs, const GradientRequests& requests = {},
                                  const std::set<std::string>& changing = {});

}  // namespace stepnet
