"""Attention, recurrent layers, embeddings."""

import math

import torch
from draw import Case, batched, fixed, operator
from torch import nn
from torch.nn import functional as F

# --- Attention


def scores_of(q, k, attrs):
    scores = attrs["scale"] * q @ k.mT
    return attrs["softcap"] * torch.tanh(scores / attrs["softcap"]) if attrs.get("softcap") else scores


def seen(q, k, attrs):
    place = torch.arange(q.shape[-2])[:, None] + attrs.get("offset", 0)
    key = torch.arange(k.shape[-2])[None, :]
    right = 0 if attrs.get("causal") else attrs.get("right_window", -1)
    left = attrs.get("left_window", -1)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    if right >= 0:
        mask &= key <= place + right
    if left >= 0:
        mask &= key >= place - left
    return mask


@operator("Attention", False)
@operator("Attention, causal", True)
def attention(r, causal):
    n, groups, ratio = r.int(1, 3, 1, 2, 4), r.int(1, 3, 4, 8, 8), r.int(1, 3, 1, 1, 1)
    t, s, depth, width = (
        r.int(1, 20, 64, 256, 512),
        r.int(1, 20, 64, 256, 512),
        r.int(1, 20, 64, 64, 64),
        r.int(1, 20, 64, 64, 64),
    )
    heads, inside, plain = groups * ratio, r.flag(0.3), r.size is not None or r.flag()
    attrs = {"scale": r.number(0.125, 1), "causal": causal, "masked": r.flag(0.4)}
    if inside:
        attrs.update(heads=heads, kv_heads=groups)
    if not plain:
        attrs.update(softcap=r.choice(0.0, 2.0), left_window=r.choice(-1, 0, 2, 5), offset=r.int(-3, 5))
        if not causal:
            attrs["right_window"] = r.choice(-1, 0, 3)
    inputs = []
    for count, rows, columns in ((heads, t, depth), (groups, s, depth), (groups, s, width)):
        inputs.append(batched(r.values([n, rows, count * columns] if inside else [n, count, rows, columns])))
    if attrs["masked"]:
        shape = r.stretched([n, heads, t, s])
        if r.flag():
            mask = r.truth(shape)
            inputs.append(mask if not plain else torch.ones_like(mask))
        else:
            inputs.append(r.values(shape))

    def function(q, k, v, mask=None):
        if inside:
            q, k, v = (
                x.unflatten(2, (count, -1)).transpose(1, 2) for x, count in ((q, heads), (k, groups), (v, groups))
            )
        if plain:
            if mask is not None and mask.dim() < 2:
                mask = mask[None, None] if mask.dim() == 0 else mask[None]  # as F wants it
            if causal and mask is not None:
                mask = torch.where(seen(q, k, attrs), 0.0, -math.inf).to(q.dtype) + (
                    0 if mask.dtype == torch.bool else mask
                )
            y = F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=causal and mask is None, scale=attrs["scale"], enable_gqa=ratio > 1
            )
        else:
            k, v = k.repeat_interleave(ratio, 1), v.repeat_interleave(ratio, 1)
            scores, open_ = scores_of(q, k, attrs), seen(q, k, attrs)
            if mask is not None:
                open_ = open_ & mask if mask.dtype == torch.bool else open_
                scores = scores if mask.dtype == torch.bool else scores + mask
            open_ = open_.expand_as(scores)
            p = torch.where(open_, scores, -1e30).softmax(-1)
            y = torch.where(open_, p, 0.0) @ v
        return y.transpose(1, 2).flatten(2) if inside else y

    # With one key its probability is 1, whatever the scores are: their gradients, sums over queries and heads of as
    # many rounded terms, cancel to nothing.
    cancelling = (width * t * ratio) ** 0.5 if s == 1 else 1.0
    return Case("Attention", attrs, inputs, function, bound=2, least=max(1.0, cancelling))


@operator("MultiHeadAttention")
def multi_head_attention(r):
    n, t, s, heads = r.int(1, 3, 1, 4, 8), r.int(1, 9, 64, 128, 256), r.int(1, 9, 64, 128, 256), r.int(1, 4, 4, 8, 8)
    width = heads * r.int(1, 8, 32, 64, 64)
    extents = [r.int(1, 9, width, width, width) for _ in range(3)]
    attrs = {"width": width, "heads": heads, "no_bias": r.flag(), "causal": r.flag()}
    inputs = [batched(r.values([n, rows, c])) for rows, c in zip((t, s, s), extents)]
    for part, c in zip(("query", "key", "value", "output"), extents + [width]):
        inputs.append(r.weight([width, c])._replace(name=f"op_{part}_weight"))
        if not attrs["no_bias"]:
            inputs.append(r.parameter([width])._replace(name=f"op_{part}_bias"))

    def function(q, k, v, *parameters):
        step = 1 if attrs["no_bias"] else 2
        projections = [parameters[i : i + step] for i in range(0, len(parameters), step)]
        split = [F.linear(x, *p).unflatten(2, (heads, -1)).transpose(1, 2) for x, p in zip((q, k, v), projections)]
        y = F.scaled_dot_product_attention(*split, is_causal=attrs["causal"])
        return F.linear(y.transpose(1, 2).flatten(2), *projections[3])

    # Of the scores of one key: see attention.
    return Case("MultiHeadAttention", attrs, inputs, function, bound=2, least=1.0 if s == 1 else 0.1)


# --- Recurrent layers

GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}


@operator("Rnn, relu", "relu")
@operator("Rnn, tanh", "tanh")
@operator("Rnn, lstm", "lstm")
@operator("Rnn, gru", "gru")
def rnn(r, cell):
    t, n, c, h = r.int(1, 9, 16, 35, 64), r.int(1, 5, 4, 16, 32), r.int(1, 9, 32, 128, 512), r.int(1, 9, 32, 128, 512)
    attrs = {
        "cell": cell,
        "hidden": h,
        "layers": r.int(1, 3, 1, 1, 1),
        "bidirectional": r.flag(0.4),
        "batch_first": r.flag(),
        "initial": r.flag(),
        "lengths": r.flag(0.4),
    }
    directions = 2 if attrs["bidirectional"] else 1
    count, lstm = directions * attrs["layers"], cell == "lstm"
    kind = {"lstm": nn.LSTM, "gru": nn.GRU}.get(cell, nn.RNN)
    more = {} if cell in ("lstm", "gru") else {"nonlinearity": cell}
    module = kind(c, h, attrs["layers"], batch_first=attrs["batch_first"], bidirectional=directions == 2, **more)
    x = r.values([n, t, c] if attrs["batch_first"] else [t, n, c])
    inputs = [batched(x, 0 if attrs["batch_first"] else 1)]
    states = count * (2 if lstm else 1) if attrs["initial"] else 0
    inputs += [batched(r.values([n, h], -1, 1)) for _ in range(states)]
    if attrs["lengths"]:
        inputs.append(batched(r.whole([n], 1, t, torch.int64)))
    names = []  # of the parameters there
    for layer in range(attrs["layers"]):
        for direction in range(directions):
            mine, theirs = f"op_l{layer}" + "_reverse" * direction, f"_l{layer}" + "_reverse" * direction
            rows, wide = GATES[cell] * h, c if layer == 0 else h * directions
            inputs += [
                r.weight([rows, wide])._replace(name=mine + "_input_weight"),
                r.parameter([rows])._replace(name=mine + "_input_bias"),
                r.weight([rows, h])._replace(name=mine + "_weight"),
            ]
            names += [prefix + theirs for prefix in ("weight_ih", "bias_ih", "weight_hh")]
            if cell == "gru":
                inputs.append(r.parameter([h])._replace(name=mine + "_bias"))
                names.append("bias_hh" + theirs)

    def function(x, *others):
        first, lengths = others[:states], others[states] if attrs["lengths"] else None
        given = dict(zip(names, others[len(others) - len(names) :]))
        for name, value in list(given.items()):
            if name.startswith("bias_ih"):
                other = given.get(name.replace("_ih", "_hh"))
                zeros = torch.zeros_like(value)
                given[name.replace("_ih", "_hh")] = zeros if other is None else torch.cat([zeros[h:], other])
        initial = torch.stack(first[:count]) if states else None
        if states and lstm:
            initial = (initial, torch.stack(first[count:]))
        packed = x
        if lengths is not None:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, attrs["batch_first"], enforce_sorted=False)
        y, last = torch.func.functional_call(module, given, (packed, initial))
        if lengths is not None:
            y, _ = nn.utils.rnn.pad_packed_sequence(y, attrs["batch_first"], total_length=t)
        return [y] + [state for kind in (last if lstm else (last,)) for state in kind]

    return Case("Rnn", attrs, inputs, function, bound=2)


@operator("Embedding")
def embedding(r):
    rows, wide = r.int(1, 30, 1000, 10000, 50000), r.int(1, 20, 64, 256, 512)
    shape = [[32], [16, 64], [32, 256]][r.size] if r.size is not None else r.shape(1, 3)
    padding = r.int(0, rows - 1) if r.flag(0.4) else None
    attrs = {"input_dim": rows, "output_dim": wide, **({} if padding is None else {"padding_idx": padding})}
    return Case(
        "Embedding",
        attrs,
        [fixed(r.whole(shape, 0, rows - 1)), r.weight([rows, wide])],
        lambda i, w: F.embedding(i, w, padding),
    )
