"""Losses, and the heads of training graphs, whose gradients are expected whatever flows back into them."""

import torch
from draw import Case, Input, batched, fixed, operator
from torch.nn import functional as F


def classes_last(x, axis):
    return x.movedim(axis, -1)


def labels_of(r, shape, classes, ignore=None):
    labels = r.whole(shape, 0, classes - 1, r.choice(torch.int64, torch.int32))
    if ignore is not None:
        labels = torch.where(torch.tensor(r.random.random(labels.shape) < 0.3), torch.full_like(labels, ignore), labels)
        if labels.numel() > 0:  # one at least counts
            labels.view(-1)[0] = 0 if ignore != 0 else min(1, classes - 1)
    return labels


def cross_entropy(r, op, of_logarithms):
    classes = r.int(2, 12, 10, 100, 1000)
    others = [[32], [128], [512]][r.size] if r.size is not None else [r.int(1, 6) for _ in range(r.int(1, 3))]
    axis = r.choice(-1, 1)
    shape = others[:]
    shape.insert(len(shape) if axis == -1 else 1, classes)
    ignore = r.choice(-1, 0, 1) if r.flag(0.4) else None
    reduction = r.int(0, 2, 2, 2, 2)
    attrs = {"axis": axis, "reduction": reduction}
    if ignore is not None:
        attrs.update(use_ignore=True, ignore_label=float(ignore))
    if not of_logarithms and r.flag(0.4):
        attrs["label_smoothing"] = r.number(0.05, 0.3)
    inputs = [
        batched(r.values(shape, -4, 4)),
        Input(labels_of(r, others, classes, ignore), layout="N" + "-" * (len(others) - 1)),
    ]
    if r.flag(0.4):
        attrs["use_weight"] = True
        inputs.append(fixed(r.values([classes], 0.2, 2)))
    name = ("none", "sum", "mean")[reduction]

    def function(x, label, weight=None):
        x = classes_last(x, axis)
        label, x = label.long().flatten(), x.reshape(-1, classes)
        more = {"ignore_index": -100 if ignore is None else ignore, "reduction": name}
        if of_logarithms:
            loss = F.nll_loss(x, label, weight, **more)
        else:
            loss = F.cross_entropy(x, label, weight, label_smoothing=attrs.get("label_smoothing", 0.0), **more)
        return loss.reshape(others) if reduction == 0 else loss

    return Case(op, attrs, inputs, function)


operator("SoftmaxCrossEntropy", "SoftmaxCrossEntropy", False)(cross_entropy)
operator("NegativeLogLikelihood", "NegativeLogLikelihood", True)(cross_entropy)


@operator("CTCLoss")
def ctc(r):
    t, n, k = r.int(2, 15, 32, 64, 128), r.int(1, 4, 4, 8, 16), r.int(2, 8, 32, 32, 64)
    longest = max(1, min((t - 1) // 2, r.int(1, 6, 8, 16, 30)))
    blank = r.choice(0, k - 1)
    attrs = {"blank": blank, "use_data_lengths": r.flag(), "use_label_lengths": r.flag(), "zero_infinity": r.flag(0.3)}
    labels = r.whole([n, longest], 0, k - 2, torch.int32)
    labels += labels >= blank
    least = 1 if attrs["zero_infinity"] else 2 * longest + 1
    steps = r.whole([n], min(least, t), t, torch.int64) if attrs["use_data_lengths"] else torch.full([n], t)
    counts = r.whole([n], 1, longest, torch.int64) if r.flag() else torch.full([n], longest)
    if not attrs["use_label_lengths"]:
        labels = torch.where(torch.arange(longest)[None] < counts[:, None], labels, -1)
    inputs = [batched(r.values([t, n, k], -3, 3), 1), batched(labels, 0)]
    inputs += [batched(x, 0) for x, key in ((steps, "use_data_lengths"), (counts, "use_label_lengths")) if attrs[key]]

    def function(x, *_):
        return F.ctc_loss(x.log_softmax(2), labels.clamp(min=0), steps, counts, blank, "none", attrs["zero_infinity"])

    return Case("CTCLoss", attrs, inputs, function, bound=10)


# --- Heads


def divisor(attrs, samples, valid, positions=1):
    kind = attrs["normalization"]
    if kind == "valid":
        return max(1, valid)
    return positions * (samples if kind == "batch" else 1)


@operator("SoftmaxOutput")
def softmax_output(r):
    classes, samples = r.int(2, 12, 10, 100, 1000), r.int(1, 6, 32, 128, 512)
    form = r.choice("plain", "multi_output", "preserve_shape")
    others = [r.int(1, 4) for _ in range(r.int(1, 2))] if form != "plain" else []
    shape = [samples, classes] + others if form == "multi_output" else [samples] + others + [classes]
    ignore = r.choice(-1, 0) if r.flag(0.4) else None
    attrs = {
        "grad_scale": r.number(1, 3),
        "normalization": r.choice("batch", "null", "valid"),
        "smooth_alpha": r.number(0.05, 0.3) if r.flag(0.3) else 0.0,
    }
    if form != "plain":
        attrs[form] = True
    if ignore is not None:
        attrs.update(use_ignore=True, ignore_label=float(ignore))
    labels = labels_of(r, [samples] + others, classes, ignore)
    axis = 1 if form == "multi_output" else -1
    counts = torch.ones(labels.shape, dtype=torch.bool) if ignore is None else labels != ignore
    smooth = attrs["smooth_alpha"]

    def loss(x, label):
        lp = classes_last(x, axis).log_softmax(-1)
        target = F.one_hot(label.long().clamp(min=0), classes).to(x.dtype)
        target = target * (1 - smooth) + (1 - target) * smooth / (classes - 1)
        total = -(target * lp * counts[..., None]).sum() * attrs["grad_scale"]
        positions = labels.numel() // samples if form == "multi_output" else 1
        return total / divisor(attrs, samples, int(counts.sum()), positions)

    return Case(
        "SoftmaxOutput",
        attrs,
        [batched(r.values(shape, -4, 4)), batched(labels, 0)],
        lambda x, label: x.softmax(axis),
        loss=loss,
    )


def regression_of(r, name, predict, loss_of):
    shape = [r.int(1, 6, 32, 128, 512)] + [r.int(1, 6, 32, 256, 1024) for _ in range(r.int(1, 2))]
    attrs = {"grad_scale": r.number(1, 3)}
    each = torch.Size(shape[1:]).numel()
    label = r.values(shape, 0, 1)
    return Case(
        name,
        attrs,
        [batched(r.values(shape)), batched(label, 0, grad=False)],
        lambda x, y: predict(x),
        loss=lambda x, y: loss_of(x, y) * attrs["grad_scale"] / each,
    )


for name, row in {
    "LinearRegressionOutput": (lambda x: x, lambda x, y: F.mse_loss(x, y, reduction="sum") / 2),
    "LogisticRegressionOutput": (torch.sigmoid, lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="sum")),
    "MAERegressionOutput": (lambda x: x, lambda x, y: F.l1_loss(x, y, reduction="sum")),
}.items():
    operator(name, name, *row)(regression_of)


@operator("SVMOutput")
def svm(r):
    shape = [r.int(1, 6, 32, 128, 512), r.int(2, 9, 10, 100, 1000)]
    attrs = {"margin": r.number(0.5, 1.5), "regularization": r.number(0.5, 2), "use_linear": r.flag()}
    label = labels_of(r, shape[:1], shape[1])

    def loss(x, label):
        sign = 1 - 2 * F.one_hot(label.long(), shape[1]).to(x.dtype)
        hinge = (attrs["margin"] + sign * x).clamp(min=0)
        return (hinge if attrs["use_linear"] else hinge.square()).sum() * attrs["regularization"]

    return Case("SVMOutput", attrs, [batched(r.values(shape)), batched(label, 0)], lambda x, label: x, loss=loss)


@operator("MakeLoss")
def make_loss(r):
    shape = r.shape(1, 4)
    attrs = {"grad_scale": r.number(1, 3), "normalization": r.choice("batch", "null", "valid"), "valid_thresh": 0.1}

    def loss(x):
        return x.sum() * attrs["grad_scale"] / divisor(attrs, shape[0], int((x > 0.1).sum()))

    return Case("MakeLoss", attrs, [batched(r.values(shape))], lambda x: x, loss=loss)


@operator("BlockGrad")
def block_grad(r):
    return Case("BlockGrad", {}, [r.values(r.shape())], lambda x: x.detach(), heads=())
